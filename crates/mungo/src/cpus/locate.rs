//! Leads from `/proc/self/cgroup` and `/proc/self/mountinfo` to the directories of our cgroup and
//! those above it.
//!
//! Two names have to meet. `/proc/self/cgroup` says which cgroup we are in; mountinfo says which
//! cgroup is the root of each mount. Both count from the root of our cgroup namespace, and both
//! start with one `..` for each level outside of it:
//!
//! ```text
//!   seen from                     cgroup    mount's root   directory
//!   the host                      /a/b      /              <mount point>/a/b
//!   container, own namespace      /         /              <mount point>
//!   container, host's namespace   /a/b      /a             <mount point>/b
//!   own namespace, host's mount   /         /..            a child of it, name unknown
//!   moved out of its container    /../c     /              not in this mount
//! ```
//!
//! A process can be moved, or the mounts changed, between our reading of the two files. Then the
//! directories are wrong or missing, and the next poll sees that `/proc/self/cgroup` has changed.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::cgroup::{Version, prepend};

/// Returns the directories whose CPU quotas bind us, innermost first, the mount's root last; none
/// when the cpu controller is not mounted where we can see it.
pub(super) fn locate(cgroup: &[u8], mountinfo: &[u8], prefix: &Path) -> (Version, Vec<PathBuf>) {
    let mounts: Vec<Mount<'_>> = lines(mountinfo).filter_map(Mount::parse).collect();
    // A controller belongs to one hierarchy at a time. While a v1 hierarchy has cpu, the v2 one of
    // a hybrid system has no cpu.max; so v2 is read only if v1 shows nothing.
    for version in [Version::V1, Version::V2] {
        let Some(ours) = lines(cgroup).find_map(|line| membership(line, version)) else {
            continue;
        };
        let best = mounts
            .iter()
            .filter(|mount| mount.has_cpu(version) && !mount.is_covered(&mounts))
            .filter_map(|mount| Some((mount, mount.view(&ours)?)))
            .max_by_key(|(_, view)| (view.leaf_known, view.below.len()));
        if let Some((mount, view)) = best {
            return (version, view.directories(&prepend(prefix, mount.point())));
        }
    }
    (Version::V2, Vec::new())
}

fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|byte| *byte == b'\n')
}

fn has_word(list: &[u8], word: &[u8]) -> bool {
    list.split(|byte| *byte == b',').any(|item| item == word)
}

/// Returns our cgroup, if this line of `/proc/self/cgroup` (`id:controllers:path`) is the one with
/// the cpu controller. The path is not escaped, and may contain colons.
fn membership(line: &[u8], version: Version) -> Option<CgroupPath<'_>> {
    let mut fields = line.splitn(3, |byte| *byte == b':');
    let (id, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
    let ours = match version {
        Version::V1 => id != b"0" && has_word(controllers, b"cpu"),
        Version::V2 => id == b"0" && controllers.is_empty(),
    };
    ours.then(|| CgroupPath::parse(path))?
}

/// A cgroup as seen from the root of our cgroup namespace: `ups` levels up, then down by `names`.
#[derive(Debug, PartialEq, Eq)]
struct CgroupPath<'a> {
    ups: usize,
    names: Vec<&'a [u8]>,
}

impl<'a> CgroupPath<'a> {
    fn parse(path: &'a [u8]) -> Option<CgroupPath<'a>> {
        let mut parsed = CgroupPath { ups: 0, names: Vec::new() };
        for name in path.strip_prefix(b"/")?.split(|byte| *byte == b'/') {
            match name {
                b"" | b"." => {}
                // The kernel writes `..` at the start only. Elsewhere one takes a name back, so
                // that no text, however odd, leads out of the mount.
                b".." => match parsed.names.pop() {
                    Some(_) => {}
                    None => parsed.ups += 1,
                },
                name => parsed.names.push(name),
            }
        }
        Some(parsed)
    }
}

/// What a mount shows of the way to our cgroup.
#[derive(Debug)]
struct View<'a> {
    /// The names from the mount's root down to us, as far as they are known.
    below: &'a [&'a [u8]],
    /// Whether these are all names on the way.
    leaf_known: bool,
}

impl View<'_> {
    fn directories(&self, mount_point: &Path) -> Vec<PathBuf> {
        let mut dirs = vec![mount_point.to_owned()];
        for name in self.below {
            let dir = dirs[dirs.len() - 1].join(OsStr::from_bytes(name));
            dirs.push(dir);
        }
        dirs.reverse();
        dirs
    }
}

/// The fields of a line of mountinfo that matter here. The ids are only compared, hence text.
#[derive(Debug)]
struct Mount<'a> {
    id: &'a [u8],
    parent: &'a [u8],
    root: Cow<'a, [u8]>,
    point: Cow<'a, [u8]>,
    fs: &'a [u8],
    super_options: &'a [u8],
}

impl<'a> Mount<'a> {
    /// Parses `id parent major:minor root point options [optional ...] - fs source super_options`.
    // WHY NOT: split at any white space: the source can be an empty field.
    fn parse(line: &'a [u8]) -> Option<Mount<'a>> {
        let mut fields = line.split(|byte| *byte == b' ');
        let (id, parent, _device) = (fields.next()?, fields.next()?, fields.next()?);
        let (root, point, _options) = (fields.next()?, fields.next()?, fields.next()?);
        fields.find(|field| *field == b"-")?;
        let (fs, _source, super_options) = (fields.next()?, fields.next()?, fields.next()?);
        // A relative point would send us into the current directory.
        point.starts_with(b"/").then(|| Mount {
            id,
            parent,
            root: unescape(root),
            point: unescape(point),
            fs,
            super_options,
        })
    }

    fn point(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.point))
    }

    fn has_cpu(&self, version: Version) -> bool {
        match version {
            Version::V1 => self.fs == b"cgroup" && has_word(self.super_options, b"cpu"),
            Version::V2 => self.fs == b"cgroup2",
        }
    }

    /// Returns whether another mount sits right on top of this one, so that its point leads to that
    /// one.
    // WHY NOT: by the order of the lines: the root file system is often listed after what is
    // mounted inside of it.
    fn is_covered(&self, mounts: &[Mount<'_>]) -> bool {
        mounts.iter().any(|top| top.parent == self.id && top.point == self.point)
    }

    /// Returns what this mount shows of the way to `ours`; `None` if our cgroup is not inside.
    fn view<'p>(&self, ours: &'p CgroupPath<'_>) -> Option<View<'p>> {
        let root = CgroupPath::parse(&self.root)?;
        if root.ups == ours.ups {
            // WHY NOT: strip_prefix: it wants both slices to live equally long.
            let inside = ours.names.starts_with(&root.names);
            return inside.then(|| View { below: &ours.names[root.names.len()..], leaf_known: true });
        }
        // The mount starts above the namespace's root, and we are not as far up. It does contain
        // us, but no file tells the names between. Its root limits us all the same.
        let above = root.ups > ours.ups && root.names.is_empty();
        above.then_some(View { below: &[], leaf_known: false })
    }
}

/// Undoes the kernel's `\ooo` for space, tab, line feed and backslash. Other text stays as it is.
fn unescape(field: &[u8]) -> Cow<'_, [u8]> {
    if !field.contains(&b'\\') {
        return Cow::Borrowed(field);
    }
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, tail @ ..] = rest {
        if let [b'\\', a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', tail @ ..] = rest {
            plain.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
            rest = tail;
        } else {
            plain.push(*first);
            rest = tail;
        }
    }
    Cow::Owned(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the directories for one v2 membership and the given `root point` pairs.
    fn v2(path: &str, mounts: &[(&str, &str)]) -> Vec<PathBuf> {
        let info: String = mounts
            .iter()
            .enumerate()
            .map(|(i, (root, point))| {
                format!("{} 1 0:26 {root} {point} rw shared:4 - cgroup2 cgroup2 rw\n", 30 + i)
            })
            .collect();
        let (version, dirs) = locate(format!("0::{path}\n").as_bytes(), info.as_bytes(), Path::new(""));
        assert_eq!(version, Version::V2);
        dirs
    }

    fn paths(texts: &[&str]) -> Vec<PathBuf> {
        texts.iter().map(PathBuf::from).collect()
    }

    #[test]
    fn namespaces() {
        assert_eq!(v2("/a/b", &[("/", "/cg")]), paths(&["/cg/a/b", "/cg/a", "/cg"]));
        assert_eq!(v2("/", &[("/", "/cg")]), paths(&["/cg"]));
        assert_eq!(v2("/a/b", &[("/a", "/cg")]), paths(&["/cg/b", "/cg"]));
        assert_eq!(v2("/a/b", &[("/a/b", "/cg")]), paths(&["/cg"]));
        assert_eq!(v2("/a/bc", &[("/a/b", "/cg")]), paths(&[]), "a name is not a prefix of a name");
        assert_eq!(v2("/a", &[("/a/b", "/cg")]), paths(&[]));
        assert_eq!(v2("/../..", &[("/", "/cg")]), paths(&[]));
        assert_eq!(v2("/../../c", &[("/", "/cg")]), paths(&[]));
        assert_eq!(v2("/../../c", &[("/../..", "/cg")]), paths(&["/cg/c", "/cg"]));
        assert_eq!(v2("/../c/d", &[("/../c", "/cg")]), paths(&["/cg/d", "/cg"]));
        assert_eq!(v2("/x", &[("/../..", "/cg")]), paths(&["/cg"]), "names between unknown");
        assert_eq!(v2("/x", &[("/../c", "/cg")]), paths(&[]), "a sibling of the namespace");
    }

    #[test]
    fn the_mount_that_shows_most_wins() {
        let want = paths(&["/all/a/b", "/all/a", "/all"]);
        assert_eq!(v2("/a/b", &[("/", "/all"), ("/a", "/some"), ("/z", "/no")]), want);
        assert_eq!(v2("/a/b", &[("/z", "/no"), ("/a", "/some"), ("/", "/all")]), want);
        assert_eq!(v2("/", &[("/", "/own"), ("/..", "/above")]), paths(&["/own"]));
        assert_eq!(v2("/", &[("/..", "/above"), ("/", "/own")]), paths(&["/own"]));
    }

    #[test]
    fn covered_mounts_do_not_count() {
        let info = b"31 30 0:26 /a /cg rw - cgroup2 cgroup2 rw\n30 1 0:26 / /cg rw - cgroup2 cgroup2 rw\n";
        let (_, dirs) = locate(b"0::/a/b\n", info, Path::new(""));
        assert_eq!(dirs, paths(&["/cg/b", "/cg"]));
    }

    #[test]
    fn odd_paths_stay_inside() {
        assert_eq!(v2("/a/../b//./c", &[("/", "/cg")]), paths(&["/cg/b/c", "/cg/b", "/cg"]));
        assert_eq!(v2("/a/../../etc", &[("/", "/cg")]), paths(&[]));
        assert_eq!(v2("a/b", &[("/", "/cg")]), paths(&[]));
        assert_eq!(v2("", &[("/", "/cg")]), paths(&[]));
        assert_eq!(v2("/a:b", &[("/", "/cg")]), paths(&["/cg/a:b", "/cg"]));
    }

    #[test]
    fn memberships() {
        let at = |path| CgroupPath::parse(path);
        assert_eq!(membership(b"4:cpu,cpuacct:/a", Version::V1), at(b"/a"));
        assert_eq!(membership(b"4:cpuacct,cpu:/a", Version::V1), at(b"/a"));
        assert_eq!(membership(b"4:cpuacct,cpuset:/a", Version::V1), None);
        assert_eq!(membership(b"4:name=cpu:/a", Version::V1), None);
        assert_eq!(membership(b"0::/a", Version::V1), None);
        assert_eq!(membership(b"0::/a", Version::V2), at(b"/a"));
        assert_eq!(membership(b"10::/a", Version::V2), None);
        assert_eq!(membership(b"0:", Version::V2), None);
        assert_eq!(membership(b"", Version::V2), None);
    }

    #[test]
    fn mount_lines() {
        let none = Mount::parse(b"36 35 0:30 / /cg rw - cgroup2  rw").expect("empty source");
        assert_eq!((none.fs, none.super_options), (&b"cgroup2"[..], &b"rw"[..]));
        let many = Mount::parse(b"36 35 0:30 / /cg rw shared:1 master:2 x - cgroup none rw,cpu,cpuacct")
            .expect("optional fields");
        assert!(many.has_cpu(Version::V1) && !many.has_cpu(Version::V2));
        for bad in [
            "",
            " ",
            "36 35 0:30 / /cg rw",
            "36 35 0:30 / /cg rw -",
            "36 35 0:30 / /cg rw - cgroup2",
            "36 35 0:30 / cg rw - cgroup2 cgroup2 rw",
        ] {
            assert!(Mount::parse(bad.as_bytes()).is_none(), "{bad:?}");
        }
    }

    #[test]
    fn escapes() {
        for (text, want) in [
            (&br"/plain"[..], &b"/plain"[..]),
            (br"/a\040b", b"/a b"),
            (br"\011\012\134", b"\t\n\\"),
            (br"/a\134040", br"/a\040"),
            (br"/end\", br"/end\"),
            (br"/end\04", br"/end\04"),
            (br"/no\090\400", br"/no\090\400"),
            (br"/\377", b"/\xff"),
        ] {
            assert_eq!(unescape(text), want);
        }
    }
}
