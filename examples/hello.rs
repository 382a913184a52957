//! Ten thousand goroutines, their results, and the one that fails.

#[mungo::main]
fn main() {
    let squares: Vec<_> = (0..10_000u64).map(|i| mungo::go(move || i * i)).collect();
    let sum: u64 = squares.into_iter().map(|s| s.join().unwrap()).sum();
    println!("the sum of 10,000 squares is {sum}");
    assert_eq!(sum, 333_283_335_000);

    let failing = mungo::go(|| -> u32 { panic!("this goroutine fails, and only this one") });
    assert!(failing.join().is_err());

    let mut words = vec!["goroutines", "may", "borrow"];
    let longest = mungo::scope(|s| s.spawn(|| words.iter().map(|w| w.len()).max()).join().unwrap());
    words.push("too");
    println!("{} (the longest word has {} letters)", words.join(" "), longest.unwrap());
}
