//! Spans of the crate `tracing` in a trace of the scheduler: what a request waited for, goroutine by goroutine. It
//! needs `--features tracing`.

use mungo_trace::{Kind, Trace};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

fn serve(request: u32) {
    let _request = tracing::info_span!("request").entered();
    {
        let _query = tracing::info_span!("query").entered();
        mungo::sleep(std::time::Duration::from_millis(2));
    }
    tracing::info!(request, "answered");
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    tracing_subscriber::registry().with(mungo::trace::layer()).init();
    let file = std::env::temp_dir().join(format!("tracing-spans-{}.trace", std::process::id()));
    let tracing = mungo::trace::start(&file)?;
    let requests: Vec<_> = (0..10).map(|n| mungo::go(move || serve(n))).collect();
    requests.into_iter().for_each(|request| request.join().expect("a request"));
    tracing.stop()?;

    let trace = Trace::open(&file)?;
    std::fs::remove_file(&file)?;
    let named = |wanted: &str| {
        let begins = trace.events.iter().filter(|event| match event.kind {
            Kind::RegionBegin { g: Some(_), name, .. } => trace.string(name) == wanted,
            _ => false,
        });
        begins.count()
    };
    println!("the trace has {} requests and {} queries", named("request"), named("query"));
    Ok(())
}
