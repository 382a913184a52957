//! Tests the whole way from files to a decision, on a made-up system in a temporary directory.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{Decision, QuotaWatch, Roots, Source, num_cpus};

const V2: &str = "29 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
const V1: &str = "\
    30 23 0:27 / /sys/fs/cgroup ro - tmpfs tmpfs ro,mode=755\n\
    31 30 0:28 / /sys/fs/cgroup/cpuset rw shared:9 - cgroup cgroup rw,cpuset\n\
    32 30 0:29 / /sys/fs/cgroup/cpu,cpuacct rw shared:10 - cgroup cgroup rw,cpu,cpuacct\n";
const UNIFIED: &str = "33 30 0:30 / /sys/fs/cgroup/unified rw shared:11 - cgroup2 cgroup2 rw\n";

/// A file tree that stands for a system; removed when dropped.
struct System {
    dir: PathBuf,
}

impl System {
    fn new(cgroup: &str, mountinfo: &str) -> System {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let serial = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("mungo-cpus-{}-{serial}", process::id()));
        let system = System { dir };
        system.set("/proc/self/cgroup", cgroup);
        system.set("/proc/self/mountinfo", mountinfo);
        system
    }

    fn path(&self, path: &str) -> PathBuf {
        self.dir.join(path.strip_prefix('/').expect("absolute"))
    }

    fn set(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().expect("has a parent")).expect("mkdir");
        fs::write(path, content).expect("write");
    }

    fn remove(&self, path: &str) {
        fs::remove_file(self.path(path)).expect("remove");
    }

    fn roots(&self) -> Roots {
        Roots {
            proc_self_cgroup: self.path("/proc/self/cgroup"),
            proc_self_mountinfo: self.path("/proc/self/mountinfo"),
            prefix: self.dir.clone(),
        }
    }

    fn decide(&self, cpus: usize) -> Decision {
        QuotaWatch::with_roots(self.roots(), cpus).decision()
    }

    /// Asserts the number of Ps that 8 CPUs come to, and the file that decides (`None`: no quota at
    /// all).
    #[track_caller]
    fn expect(&self, procs: usize, quota: Option<(f64, &str)>) {
        let want = Decision {
            procs,
            cpus: 8,
            quota: quota.map(|(limit, _)| limit),
            source: quota.map_or(Source::Cpus, |(_, file)| Source::Quota { file: self.path(file) }),
        };
        assert_eq!(self.decide(8), want);
    }
}

impl Drop for System {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

#[test]
fn v2_leaf() {
    let system = System::new("0::/app.slice/job\n", V2);
    system.set("/sys/fs/cgroup/app.slice/job/cpu.max", "300000 100000\n");
    system.set("/sys/fs/cgroup/app.slice/cpu.max", "max 100000\n");
    system.expect(3, Some((3.0, "/sys/fs/cgroup/app.slice/job/cpu.max")));
}

#[test]
fn v2_tighter_ancestor() {
    let system = System::new("0::/a/b/c\n", V2);
    system.set("/sys/fs/cgroup/a/b/c/cpu.max", "600000 100000\n");
    system.set("/sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
    system.set("/sys/fs/cgroup/a/cpu.max", "200000 50000\n");
    system.expect(4, Some((4.0, "/sys/fs/cgroup/a/cpu.max")));

    // The issue that Go has open: the leaf has no cpu controller at all.
    system.remove("/sys/fs/cgroup/a/b/c/cpu.max");
    system.expect(4, Some((4.0, "/sys/fs/cgroup/a/cpu.max")));

    // Another leaf's limit is not ours.
    system.set("/sys/fs/cgroup/a/other/cpu.max", "200000 100000\n");
    system.expect(4, Some((4.0, "/sys/fs/cgroup/a/cpu.max")));
}

#[test]
fn of_equal_limits_the_innermost_is_named() {
    let system = System::new("0::/a/b\n", V2);
    system.set("/sys/fs/cgroup/a/b/cpu.max", "300000 100000\n");
    system.set("/sys/fs/cgroup/a/cpu.max", "150000 50000\n");
    system.expect(3, Some((3.0, "/sys/fs/cgroup/a/b/cpu.max")));
}

#[test]
fn v1() {
    let system = System::new("12:cpuset:/x\n4:cpu,cpuacct:/docker/abc\n1:name=systemd:/y\n", V1);
    system.set("/sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_quota_us", "-1\n");
    system.set("/sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_period_us", "100000\n");
    system.set("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
    system.set("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
    system.expect(8, None);

    system.set("/sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_quota_us", "250000\n");
    system.expect(3, Some((2.5, "/sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_quota_us")));

    system.set("/sys/fs/cgroup/cpu,cpuacct/docker/cpu.cfs_quota_us", "100000\n");
    system.set("/sys/fs/cgroup/cpu,cpuacct/docker/cpu.cfs_period_us", "50000\n");
    system.expect(2, Some((2.0, "/sys/fs/cgroup/cpu,cpuacct/docker/cpu.cfs_quota_us")));
}

#[test]
fn hybrid_with_cpu_on_v1() {
    let system = System::new("4:cpu,cpuacct:/one\n1:name=systemd:/y\n0::/two\n", &format!("{UNIFIED}{V1}"));
    system.set("/sys/fs/cgroup/cpu,cpuacct/one/cpu.cfs_quota_us", "500000\n");
    system.set("/sys/fs/cgroup/cpu,cpuacct/one/cpu.cfs_period_us", "100000\n");
    system.set("/sys/fs/cgroup/unified/two/cgroup.procs", "1\n");
    system.expect(5, Some((5.0, "/sys/fs/cgroup/cpu,cpuacct/one/cpu.cfs_quota_us")));
}

#[test]
fn hybrid_with_cpu_on_v2() {
    let mounts = format!("{UNIFIED}31 30 0:28 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n");
    let system = System::new("4:cpuset:/one\n0::/two\n", &mounts);
    system.set("/sys/fs/cgroup/unified/two/cpu.max", "500000 100000\n");
    system.expect(5, Some((5.0, "/sys/fs/cgroup/unified/two/cpu.max")));
}

#[test]
fn no_limits() {
    System::new("0::/a\n", V2).expect(8, None);
    System::new("", "").expect(8, None);
    System::new("0::/a\n", "").expect(8, None);
    System::new("", V2).expect(8, None);

    let system = System::new("", "");
    system.remove("/proc/self/cgroup");
    system.remove("/proc/self/mountinfo");
    system.expect(8, None);
}

#[test]
fn fractions_and_bounds() {
    let system = System::new("0::/\n", V2);
    for (max, cpus, procs, by_quota) in [
        ("50000 100000\n", 8, 2, true),
        ("50000 100000\n", 2, 2, false),
        ("50000 100000\n", 1, 1, false),
        ("100000 100000\n", 8, 2, true),
        ("210000 100000\n", 8, 3, true),
        ("210000 100000\n", 3, 3, false),
        ("6400000 100000\n", 8, 8, false),
        ("17592186044416 1000\n", 8, 8, false),
    ] {
        system.set("/sys/fs/cgroup/cpu.max", max);
        let decision = system.decide(cpus);
        assert_eq!((decision.procs, decision.cpus), (procs, cpus), "{max:?}");
        assert_eq!(decision.source != Source::Cpus, by_quota, "{max:?} on {cpus}");
        assert!(decision.quota.is_some(), "also told when it decides nothing");
    }
}

#[test]
fn container_in_the_hosts_namespace() {
    // The mount shows a subtree, while the path counts from the top of the hierarchy.
    let system = System::new(
        "4:cpu,cpuacct:/kubepods/pod1/c1\n0::/\n",
        "40 30 0:29 /kubepods/pod1/c1 /sys/fs/cgroup/cpu ro master:9 - cgroup cgroup rw,cpu\n",
    );
    system.set("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "300000\n");
    system.set("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
    system.expect(3, Some((3.0, "/sys/fs/cgroup/cpu/cpu.cfs_quota_us")));

    // A cgroup of our own inside the container.
    system.set("/proc/self/cgroup", "4:cpu,cpuacct:/kubepods/pod1/c1/inner\n");
    system.expect(3, Some((3.0, "/sys/fs/cgroup/cpu/cpu.cfs_quota_us")));
    system.set("/sys/fs/cgroup/cpu/inner/cpu.cfs_quota_us", "200000\n");
    system.set("/sys/fs/cgroup/cpu/inner/cpu.cfs_period_us", "100000\n");
    system.expect(2, Some((2.0, "/sys/fs/cgroup/cpu/inner/cpu.cfs_quota_us")));

    // Put elsewhere from outside: what the mount shows does not bind us any more.
    system.set("/proc/self/cgroup", "4:cpu,cpuacct:/kubepods/pod2\n");
    system.expect(8, None);
}

#[test]
fn container_in_its_own_namespace() {
    let system = System::new("0::/\n", V2);
    system.set("/sys/fs/cgroup/cpu.max", "400000 100000\n");
    system.expect(4, Some((4.0, "/sys/fs/cgroup/cpu.max")));
    system.set("/proc/self/cgroup", "0::/../..\n");
    system.expect(8, None);
    system.set("/proc/self/mountinfo", V2.replace("0:26 / ", "0:26 /../../.. "));
    system.expect(4, Some((4.0, "/sys/fs/cgroup/cpu.max")));
}

#[test]
fn a_path_that_does_not_exist_falls_back_on_what_does() {
    // Some runtimes show the host's path next to a mount that looks like a root.
    let system = System::new("0::/docker/abc\n", V2);
    system.set("/sys/fs/cgroup/cpu.max", "300000 100000\n");
    system.expect(3, Some((3.0, "/sys/fs/cgroup/cpu.max")));
}

#[test]
fn escapes_in_mountinfo() {
    let system = System::new(
        "0::/my app/job\n",
        r"29 23 0:26 /my\040app /mnt/c\011g\134root rw shared:4 - cgroup2 cgroup2 rw",
    );
    system.set("/mnt/c\tg\\root/job/cpu.max", "300000 100000\n");
    system.expect(3, Some((3.0, "/mnt/c\tg\\root/job/cpu.max")));
}

#[test]
fn malformed_files_limit_nothing() {
    let system = System::new("0::/a/b\n", V2);
    system.set("/sys/fs/cgroup/a/cpu.max", "300000 100000\n");
    let padded = format!("200000 100000{:100}\n", "");
    for garbage in [
        &b""[..],
        padded.as_bytes(),
        b"\n",
        b"lots",
        b"-5 100000\n",
        b"\0\xff\xfe",
        b"100000 0\n",
        &[b'1'; 5000],
    ] {
        system.set("/sys/fs/cgroup/a/b/cpu.max", garbage);
        system.expect(3, Some((3.0, "/sys/fs/cgroup/a/cpu.max")));
    }
    system.remove("/sys/fs/cgroup/a/b/cpu.max");
    fs::create_dir(system.path("/sys/fs/cgroup/a/b/cpu.max")).expect("a directory for a file");
    system.expect(3, Some((3.0, "/sys/fs/cgroup/a/cpu.max")));

    let v1 = System::new("4:cpu,cpuacct:/\n", V1);
    v1.set("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "300000\n");
    v1.expect(8, None);
    for period in ["", "0\n", "-1\n", "ten\n"] {
        v1.set("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", period);
        v1.expect(8, None);
    }
}

#[test]
fn malformed_proc_files_limit_nothing() {
    let system = System::new("", V2);
    system.set("/sys/fs/cgroup/cpu.max", "300000 100000\n");
    for cgroup in [&b"0"[..], b"0:", b"0::", b":::::", b"\n\n\n", b"0::relative\n", b"\xff:\xff:\xff"] {
        system.set("/proc/self/cgroup", cgroup);
        system.expect(8, None);
    }
    system.set("/proc/self/cgroup", "garbage\n0::/\n");
    for mountinfo in ["x", "29 23", " - - - - - - - -", "29 23 0:26 root /sys/fs/cgroup rw - cgroup2 c rw\n"] {
        system.set("/proc/self/mountinfo", mountinfo);
        system.expect(8, None);
    }
    system.set("/proc/self/mountinfo", format!("garbage\n\n{V2}"));
    system.expect(3, Some((3.0, "/sys/fs/cgroup/cpu.max")));
}

#[test]
fn poll_tells_changes_of_the_quota() {
    let system = System::new("0::/a\n", V2);
    system.set("/sys/fs/cgroup/a/cpu.max", "400000 100000\n");
    let mut watch = QuotaWatch::with_roots(system.roots(), 8);
    assert_eq!(watch.decision().procs, 4);
    assert_eq!(watch.poll_with(8), None);

    system.set("/sys/fs/cgroup/a/cpu.max", "600000 100000\n");
    let change = watch.poll_with(8).expect("changed");
    assert_eq!((change.procs, change.quota), (6, Some(6.0)));
    assert_eq!(watch.poll_with(8), None, "told once");

    // The same number for another reason: silent, but known.
    system.set("/sys/fs/cgroup/a/cpu.max", "550000 100000\n");
    assert_eq!(watch.poll_with(8), None);
    assert_eq!(watch.decision().quota, Some(5.5));

    // A limit appears above us, where there was no file before.
    system.set("/sys/fs/cgroup/cpu.max", "300000 100000\n");
    let file = system.path("/sys/fs/cgroup/cpu.max");
    assert_eq!(watch.poll_with(8).expect("changed").source, Source::Quota { file });

    system.set("/sys/fs/cgroup/cpu.max", "max 100000\n");
    system.remove("/sys/fs/cgroup/a/cpu.max");
    let change = watch.poll_with(8).expect("changed");
    assert_eq!(change, Decision { procs: 8, cpus: 8, quota: None, source: Source::Cpus });
}

#[test]
fn poll_tells_changes_of_the_affinity() {
    let system = System::new("0::/a\n", V2);
    system.set("/sys/fs/cgroup/a/cpu.max", "400000 100000\n");
    let mut watch = QuotaWatch::with_roots(system.roots(), 8);
    let change = watch.poll_with(3).expect("fewer CPUs than quota");
    assert_eq!((change.procs, change.cpus, change.source), (3, 3, Source::Cpus));
    assert_eq!(watch.poll_with(16).expect("quota again").procs, 4);
    assert_eq!(watch.poll_with(12), None);
    assert_eq!(watch.decision().cpus, 12);
}

#[test]
fn poll_follows_a_move() {
    let system = System::new("0::/a\n", V2);
    system.set("/sys/fs/cgroup/a/cpu.max", "400000 100000\n");
    system.set("/sys/fs/cgroup/b/c/cpu.max", "200000 100000\n");
    let mut watch = QuotaWatch::with_roots(system.roots(), 8);
    assert_eq!(watch.decision().procs, 4);

    system.set("/proc/self/cgroup", "0::/b/c\n");
    let file = system.path("/sys/fs/cgroup/b/c/cpu.max");
    assert_eq!(watch.poll_with(8).expect("moved").source, Source::Quota { file });
    assert_eq!(watch.poll_with(8), None);

    // Unreadable for once: we are still where we were.
    system.remove("/proc/self/cgroup");
    assert_eq!(watch.poll_with(8), None);

    system.set("/proc/self/cgroup", "0::/\n");
    assert_eq!(watch.poll_with(8).expect("moved to the root").procs, 8);
    system.set("/proc/self/cgroup", "0::/a\n");
    assert_eq!(watch.poll_with(8).expect("and back").procs, 4);
}

#[test]
fn forbidden_files_limit_nothing_and_are_asked_for_once() {
    let system = System::new("0::/\n", V2);
    system.set("/sys/fs/cgroup/cpu.max", "300000 100000\n");
    let mountinfo = system.path("/proc/self/mountinfo");
    let allow = |mode| fs::set_permissions(&mountinfo, fs::Permissions::from_mode(mode)).expect("chmod");
    allow(0o000);
    if fs::File::open(&mountinfo).is_ok() {
        return; // root may read anything
    }
    let mut watch = QuotaWatch::with_roots(system.roots(), 8);
    assert_eq!(watch.decision().procs, 8);
    allow(0o644);
    system.set("/proc/self/cgroup", "0::/a\n");
    assert_eq!(watch.poll_with(8), None);
}

#[test]
fn without_a_move_nothing_is_looked_up_or_allocated_again() {
    let system = System::new("0::/a\n", V2);
    system.set("/sys/fs/cgroup/a/cpu.max", "400000 100000\n");
    let mut watch = QuotaWatch::with_roots(system.roots(), 8);
    watch.poll_with(8);
    let before = watch.buffers();
    system.remove("/proc/self/mountinfo");
    for _ in 0..3 {
        assert_eq!(watch.poll_with(8), None);
        assert_eq!(watch.buffers(), before);
    }
}

#[test]
fn the_real_system_has_an_answer() {
    let decision = QuotaWatch::new().decision();
    assert!((1..=decision.cpus).contains(&decision.procs), "{decision:?}");
    assert_eq!(decision.cpus, num_cpus());
    assert_eq!(QuotaWatch::new().poll(), None);
}
