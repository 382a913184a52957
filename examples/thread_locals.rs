//! A goroutine keeps its thread-locals, even a borrow from one, wherever it runs.

use std::cell::RefCell;
use std::collections::HashSet;
use std::rc::Rc;

thread_local! {
    static LOG: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
    static NOTE: Rc<String> = Rc::new(format!("{:?}", std::thread::current().id()));
}

fn os_thread() -> String {
    std::fs::read_link("/proc/thread-self").map_or_else(|_| "?".to_owned(), |p| p.display().to_string())
}

#[mungo::main(procs = 4)]
fn main() {
    let travellers: Vec<_> = (0..200)
        .map(|i| {
            mungo::go(move || {
                let mut seen = HashSet::new();
                let note = NOTE.with(Rc::clone); // not `Send`, and need not be
                LOG.with_borrow_mut(|log| {
                    for step in 0..100 {
                        seen.insert(os_thread());
                        log.push(format!("goroutine {i}, step {step}"));
                        mungo::yield_now(); // with the borrow in hand
                    }
                });
                assert_eq!(LOG.with_borrow(Vec::len), 100, "no other goroutine wrote to it");
                assert_eq!(*note, format!("{:?}", std::thread::current().id()));
                seen.len()
            })
        })
        .collect();
    let threads: Vec<usize> = travellers.into_iter().map(|t| t.join().unwrap()).collect();
    let moved = threads.iter().filter(|&&n| n > 1).count();
    println!(
        "{moved} of 200 goroutines ran on more than one OS thread, and found their thread-locals each time"
    );
}
