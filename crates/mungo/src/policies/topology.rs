//! The machine's NUMA nodes: which memory is near which CPU.

use std::fs;
use std::io;
use std::path::Path;

/// The distance of a node to itself, by the firmware's convention.
const OWN: u32 = 10;
const FAR: u32 = 20;

/// The NUMA nodes of a machine.
///
/// ```
/// use mungo::policy::Topology;
///
/// let flat = Topology::flat();
/// assert_eq!(flat.nodes(), 1);
/// assert_eq!(flat.distance(0, 0), 10);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    /// The node of each CPU.
    node_of_cpu: Vec<usize>,
    /// Row by row, as the firmware says it: 10 is here, 20 twice as far.
    distances: Vec<Vec<u32>>,
}

impl Topology {
    /// Returns a machine of one node.
    ///
    /// ```
    /// use mungo::policy::Topology;
    ///
    /// assert_eq!((Topology::flat().nodes(), Topology::flat().node_of_cpu(7)), (1, 0));
    /// ```
    pub fn flat() -> Topology {
        Topology { node_of_cpu: Vec::new(), distances: vec![vec![OWN]] }
    }

    /// Returns a made-up machine: the node of each CPU, and the distances row by row.
    ///
    /// ```
    /// use mungo::policy::Topology;
    ///
    /// let topology = Topology::new(vec![0, 0, 1, 1], vec![vec![10, 21], vec![21, 10]])?;
    /// assert_eq!((topology.nodes(), topology.node_of_cpu(2)), (2, 1));
    /// assert!(Topology::new(vec![2], vec![vec![10]]).is_err(), "there is no node 2");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidInput` if the table is not square, or a CPU is on a node that is not in it.
    pub fn new(node_of_cpu: Vec<usize>, distances: Vec<Vec<u32>>) -> io::Result<Topology> {
        let n = distances.len();
        if n == 0 || distances.iter().any(|row| row.len() != n) {
            return invalid(format!("a table of distances with {n} rows: each must have as many columns"));
        }
        if let Some(node) = node_of_cpu.iter().find(|node| **node >= n) {
            return invalid(format!("a CPU on node {node}: there are {n}"));
        }
        Ok(Topology { node_of_cpu, distances })
    }

    /// Returns this machine, from sysfs; flat if there is nothing to read.
    ///
    /// ```
    /// use mungo::policy::Topology;
    ///
    /// let machine = Topology::of_this_machine();
    /// assert!(machine.nodes() >= 1);
    /// assert_eq!(machine.distance(0, 0), 10);
    /// ```
    pub fn of_this_machine() -> Topology {
        Topology::read(Path::new("/sys/devices/system/node")).unwrap_or_else(|_| Topology::flat())
    }

    /// Reads a machine from a folder with `node0/cpulist`, `node0/distance` and so on.
    ///
    /// ```
    /// use mungo::policy::Topology;
    ///
    /// let folder = std::env::temp_dir().join(format!("nodes-{}", std::process::id()));
    /// for (id, cpus, distances) in [(0, "0-1", "10 21"), (1, "2-3", "21 10")] {
    ///     let node = folder.join(format!("node{id}"));
    ///     std::fs::create_dir_all(&node)?;
    ///     std::fs::write(node.join("cpulist"), cpus)?;
    ///     std::fs::write(node.join("distance"), distances)?;
    /// }
    /// let topology = Topology::read(&folder)?;
    /// std::fs::remove_dir_all(&folder)?;
    /// assert_eq!((topology.node_of_cpu(1), topology.node_of_cpu(3)), (0, 1));
    /// assert_eq!(topology.distance(0, 1), 21);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns what reading the files returned, or `InvalidData` for what is not understood.
    pub fn read(folder: &Path) -> io::Result<Topology> {
        let mut ids = Vec::new();
        for entry in fs::read_dir(folder)? {
            let name = entry?.file_name();
            let id = name.to_string_lossy().strip_prefix("node").and_then(|n| n.parse::<usize>().ok());
            ids.extend(id);
        }
        ids.sort_unstable(); // there may be gaps
        let mut node_of_cpu = Vec::new();
        let mut distances = Vec::new();
        for (node, id) in ids.iter().enumerate() {
            let folder = folder.join(format!("node{id}"));
            for cpu in cpu_list(&fs::read_to_string(folder.join("cpulist"))?)? {
                if node_of_cpu.len() <= cpu {
                    node_of_cpu.resize(cpu + 1, 0);
                }
                node_of_cpu[cpu] = node;
            }
            let row = fs::read_to_string(folder.join("distance"))?;
            let row: Vec<u32> = row.split_whitespace().map(number).collect::<io::Result<_>>()?;
            distances.push(row);
        }
        match distances.is_empty() {
            true => Ok(Topology::flat()),
            false => Topology::new(node_of_cpu, distances),
        }
    }

    /// Returns how many nodes there are.
    ///
    /// ```
    /// use mungo::policy::Topology;
    ///
    /// let topology = Topology::new(vec![0, 0, 1, 1], vec![vec![10, 21], vec![21, 10]])?;
    /// assert_eq!(topology.nodes(), 2);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn nodes(&self) -> usize {
        self.distances.len()
    }

    /// Returns the node of a CPU; of one that is not known, node 0.
    ///
    /// ```
    /// use mungo::policy::Topology;
    ///
    /// let topology = Topology::new(vec![0, 0, 1, 1], vec![vec![10, 21], vec![21, 10]])?;
    /// assert_eq!((topology.node_of_cpu(1), topology.node_of_cpu(3)), (0, 1));
    /// assert_eq!(topology.node_of_cpu(99), 0, "not known");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn node_of_cpu(&self, cpu: usize) -> usize {
        self.node_of_cpu.get(cpu).copied().unwrap_or(0)
    }

    /// Returns how far apart two nodes are: 10 is the same.
    ///
    /// ```
    /// use mungo::policy::Topology;
    ///
    /// let topology = Topology::new(vec![0, 0, 1, 1], vec![vec![10, 21], vec![21, 10]])?;
    /// assert_eq!((topology.distance(0, 0), topology.distance(0, 1)), (10, 21));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn distance(&self, from: usize, to: usize) -> u32 {
        self.distances.get(from).and_then(|row| row.get(to)).copied().unwrap_or(FAR)
    }

    /// Returns all distances from a node, each once, the nearest first.
    ///
    /// ```
    /// use mungo::policy::Topology;
    ///
    /// let topology = Topology::new(vec![0, 0, 1, 1], vec![vec![10, 21], vec![21, 10]])?;
    /// assert_eq!(topology.rings(1), [10, 21]);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn rings(&self, from: usize) -> Vec<u32> {
        let mut rings = self.distances.get(from).cloned().unwrap_or_default();
        rings.sort_unstable();
        rings.dedup();
        rings
    }
}

fn invalid<T>(why: String) -> io::Result<T> {
    Err(io::Error::new(io::ErrorKind::InvalidInput, why))
}

fn number<N: std::str::FromStr>(text: &str) -> io::Result<N> {
    let why = || io::Error::new(io::ErrorKind::InvalidData, format!("'{text}' is not a number"));
    text.trim().parse().map_err(|_| why())
}

/// Parses a list of CPUs, as `0-3,8,10-11`.
fn cpu_list(text: &str) -> io::Result<Vec<usize>> {
    let mut cpus = Vec::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        cpus.extend(number::<usize>(first)?..=number(last)?);
    }
    Ok(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_as_sysfs_has_it() {
        let folder = std::env::temp_dir().join(format!("mungo-topology-{}", std::process::id()));
        for (id, cpus, row) in [(0, "0-1,4\n", "10 21\n"), (2, "2-3\n", "21 10\n")] {
            let node = folder.join(format!("node{id}"));
            fs::create_dir_all(&node).unwrap();
            fs::write(node.join("cpulist"), cpus).unwrap();
            fs::write(node.join("distance"), row).unwrap();
        }
        fs::create_dir_all(folder.join("power")).unwrap();
        let read = Topology::read(&folder);
        fs::remove_dir_all(&folder).unwrap();
        let expected = Topology::new(vec![0, 0, 1, 1, 0], vec![vec![10, 21], vec![21, 10]]).unwrap();
        assert_eq!(read.unwrap(), expected);
        assert_eq!(expected.rings(1), [10, 21]);
    }

    #[test]
    fn nonsense_is_refused() {
        assert!(Topology::new(vec![], vec![vec![10, 20]]).is_err());
        assert!(Topology::new(vec![1], vec![vec![10]]).is_err());
        assert!(cpu_list("0-x").is_err());
        assert_eq!(cpu_list("\n").unwrap(), []);
    }
}
