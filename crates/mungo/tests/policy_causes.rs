//! A policy is told the true cause of each goroutine that it is given.

mod common;

use common::{end, wait_until};
use mungo::net::{TcpListener, TcpStream};
use mungo::policy::{Cause, Proc, Scheduler, Task};
use mungo::{Runtime, chan, go};
use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What a policy was told: whose, and why.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<Vec<(u64, Cause)>>>);

impl Told {
    fn has(&self, id: u64, cause: Cause) -> bool {
        self.0.lock().unwrap().contains(&(id, cause))
    }
}

struct Records(Told);

impl Scheduler for Records {
    fn queue_task(&self, task: Task, proc: &mut Proc<'_>, next: bool, local: bool) {
        let info = task.info();
        self.0.0.lock().unwrap().push((info.id, info.cause));
        match (local, next) {
            (false, _) => proc.global().push_back(task),
            (true, true) => proc.local().push_next(task),
            (true, false) => proc.local().push_back(task),
        }
    }
}

fn recorded(procs: usize) -> (Runtime, Told) {
    let told = Told::default();
    let runtime = Runtime::builder().procs(procs).scheduler(Records(told.clone())).build().unwrap();
    (runtime, told)
}

fn own_id() -> u64 {
    mungo::current().id().as_u64()
}

#[test]
fn by_goroutines_timers_and_threads() {
    let (runtime, told) = recorded(1);
    let (to_thread, from_goroutine) = std::sync::mpsc::channel();
    let (to_goroutine, from_thread) = chan::unbounded();
    let outside = runtime.spawn(move || {
        to_thread.send(()).unwrap();
        from_thread.recv().unwrap();
        own_id()
    });
    from_goroutine.recv().unwrap();
    wait_until("it waits", || runtime.metrics().idle_procs == 1);
    to_goroutine.send(()).unwrap();
    assert!(told.has(outside.join().unwrap(), Cause::Outside));
    let ids = runtime.run(|| {
        let (send, receive) = chan::bounded::<()>(0);
        let woken = go(move || {
            receive.recv().unwrap();
            own_id()
        });
        mungo::yield_now(); // it waits from here on
        send.send(()).unwrap();
        let yielded = own_id();
        let timer = go(|| {
            mungo::sleep(Duration::from_millis(2));
            own_id()
        });
        (woken.join().unwrap(), yielded, timer.join().unwrap())
    });
    let (woken, yielded, timer) = ids;
    assert!(told.has(woken, Cause::Spawned) && told.has(woken, Cause::Woken));
    assert!(told.has(yielded, Cause::Yielded));
    assert!(told.has(timer, Cause::Timer));
    end(runtime);
}

#[test]
fn by_the_network() {
    let (runtime, told) = recorded(2);
    let reader = runtime.run(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let reader = go(move || {
            let (mut stream, _) = listener.accept().unwrap();
            for _ in 0..20 {
                stream.read_exact(&mut [0]).unwrap();
            }
            own_id()
        });
        let mut stream = TcpStream::connect(address).unwrap();
        for _ in 0..20 {
            mungo::sleep(Duration::from_millis(1)); // the reader waits meanwhile
            stream.write_all(&[1]).unwrap();
        }
        reader.join().unwrap()
    });
    assert!(told.has(reader, Cause::Network));
    end(runtime);
}

#[test]
fn by_the_end_of_a_call_that_blocked_and_by_the_monitor() {
    let (runtime, told) = recorded(1);
    let stop = Arc::new(AtomicBool::new(false));
    let computing: Vec<_> = (0..2)
        .map(|_| {
            let stop = stop.clone();
            runtime.spawn(move || {
                while !stop.load(Relaxed) {}
                own_id()
            })
        })
        .collect();
    let blocked = runtime.spawn(|| {
        for _ in 0..5 {
            std::thread::sleep(Duration::from_millis(5)); // loses its P, which the others keep busy
            mungo::yield_now();
        }
        own_id()
    });
    assert!(told.has(blocked.join().unwrap(), Cause::Unblocked));
    stop.store(true, Relaxed);
    for computing in computing {
        assert!(told.has(computing.join().unwrap(), Cause::Preempted));
    }
    end(runtime);
}
