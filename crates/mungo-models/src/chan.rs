#[path = "../../mungo/src/chan/queue/mod.rs"]
mod queue;
