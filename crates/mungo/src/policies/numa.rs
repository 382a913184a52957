//! Steals from near neighbours first.
//!
//! Good at: machines with several memory nodes. A stolen goroutine finds its memory on the same node if any P there
//! has work; only then farther ones are asked, in the order of the distances that the firmware gives. Threads are not
//! bound to CPUs: where a P is, is asked each time that it looks for work.
//!
//! Bad at: nothing on a machine of one node, where it behaves as the default policy (through the interface, so a little
//! slower). It does not move memory.

use super::{Options, Policy, Proc, Scheduler, Topology};

/// Victims by distance. [When to choose it](crate::policy#choosing-one).
///
/// ```
/// let runtime = mungo::Runtime::builder().scheduler(mungo::policy::Numa::new()).build()?;
/// assert_eq!(runtime.run(|| mungo::go(|| 1).join().unwrap()), 1);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct Numa(());

impl Numa {
    /// Makes a policy for the machine that it runs on.
    ///
    /// ```
    /// use mungo::policy::sim::Machine;
    /// use mungo::policy::{Cause, Numa, Topology};
    ///
    /// // P 0 and P 1 are on one node, P 2 on another.
    /// let topology = Topology::new(vec![0, 0, 1], vec![vec![10, 20], vec![20, 10]])?;
    /// let (policy, mut machine) = (Numa::new(), Machine::with_topology(3, 1, topology));
    /// let (far, near) = (machine.spawn(), machine.spawn());
    /// machine.queue(&policy, far, 2, Cause::Spawned);
    /// machine.queue(&policy, near, 1, Cause::Spawned);
    /// assert_eq!(machine.next(&policy, 0), Some(near));
    /// assert_eq!(machine.next(&policy, 0), Some(far));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn new() -> Numa {
        Numa(())
    }

    pub(crate) fn with_options(_: &mut Options) -> Result<Policy, String> {
        Ok(Numa::new().into())
    }
}

/// Returns the `n`th of the distances from a node, each counted once, the nearest first.
fn ring(topology: &Topology, from: usize, n: usize) -> Option<u32> {
    let mut at = None;
    for _ in 0..=n {
        let farther = (0..topology.nodes()).map(|to| topology.distance(from, to));
        at = farther.filter(|d| at.is_none_or(|at| *d > at)).min();
        at?;
    }
    at
}

impl Scheduler for Numa {
    fn name(&self) -> &str {
        "numa"
    }

    /// Returns victims in a round over all Ps for each distance, in which Ps at another distance are passed over. In
    /// the last rounds all are asked.
    fn victim(&self, proc: &Proc<'_>, start: u64, attempt: usize) -> Option<usize> {
        let n = proc.procs();
        let (round, at) = (attempt / n, attempt % n);
        let victim = (start % n as u64) as usize + at;
        let victim = victim % n;
        let own = proc.node_of(proc.id());
        match ring(proc.topology(), own, round) {
            // A P that asks itself passes one over.
            Some(ring) if proc.topology().distance(own, proc.node_of(victim)) != ring => Some(proc.id()),
            Some(_) => Some(victim),
            None => (round < proc.topology().nodes() + super::STEAL_ROUNDS - 1).then_some(victim),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policies::sim::Machine;

    /// Four nodes of two CPUs each, in a row.
    fn row() -> Topology {
        let distance = |a: u32, b: u32| 10 + 10 * a.abs_diff(b);
        let distances = (0..4).map(|a| (0..4).map(|b| distance(a, b)).collect()).collect();
        Topology::new(vec![0, 0, 1, 1, 2, 2, 3, 3], distances).unwrap()
    }

    #[test]
    fn rings_are_distances_in_order() {
        let topology = row();
        let rings = |from| (0..4).map_while(|n| ring(&topology, from, n)).collect::<Vec<_>>();
        assert_eq!(rings(0), [10, 20, 30, 40]);
        assert_eq!(rings(1), [10, 20, 30]);
    }

    #[test]
    fn near_victims_come_first_and_all_are_asked() {
        let mut machine = Machine::with_topology(8, 1, row());
        for start in 0..20 {
            let proc = machine.proc(2);
            let numa = Numa::new();
            let asked: Vec<usize> = (0..).map_while(|i| numa.victim(&proc, start, i)).collect();
            let mut order: Vec<usize> = Vec::new();
            for victim in asked.into_iter().filter(|v| *v != 2) {
                if !order.contains(&victim) {
                    order.push(victim);
                }
            }
            assert_eq!(order.len(), 7);
            assert_eq!(order[0], 3, "the neighbour on the node");
            let mut near: Vec<usize> = order[1..5].to_vec();
            near.sort_unstable();
            assert_eq!(near, [0, 1, 4, 5]);
        }
    }

    #[test]
    fn on_one_node_it_asks_all() {
        let mut machine = Machine::new(4, 1);
        let proc = machine.proc(0);
        let asked: Vec<usize> = (0..).map_while(|i| Numa::new().victim(&proc, 7, i)).collect();
        let default: Vec<usize> =
            (0..).map_while(|i| crate::policies::DefaultPolicy::new().victim(&proc, 7, i)).collect();
        assert_eq!(asked, default);
    }
}
