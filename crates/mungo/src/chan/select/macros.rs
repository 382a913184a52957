//! The macros.

/// Waits for several channel operations, does one of them, and goes on with its arm.
///
/// - `recv(receiver) -> result => body` is chosen when a value is there or the channel is disconnected; `result` is a
///   [`Result<T, RecvError>`](crate::chan::RecvError).
/// - `send(sender, value) -> result => body` is chosen when there is a place or a receiver, or the channel is
///   disconnected; `result` is a [`Result<(), SendError<T>>`](crate::chan::SendError). The value is made only now.
/// - `default => body` is chosen when no other arm can go on.
/// - `default(timeout) => body` is chosen when no other arm could go on for `timeout`, a
///   [`Duration`](std::time::Duration).
///
/// Of several arms that can go on one is chosen at random, each with the same chance. Channels may occur several
/// times, also both ends of one. `result` may be any pattern that always matches. A body that is not a block ends
/// with a comma. The whole is an expression, with the value of the body. Without arms it blocks for ever.
///
/// ```
/// use mungo::chan::{bounded, select, unbounded};
/// use std::time::Duration;
///
/// let (numbers, number) = unbounded();
/// let (_words, word) = bounded::<&str>(0);
/// mungo::go(move || numbers.send(7).unwrap());
///
/// select! {
///     recv(number) -> n => assert_eq!(n, Ok(7)),
///     recv(word) -> w => unreachable!("no sender said {w:?}"),
///     default(Duration::from_secs(10)) => unreachable!("ten seconds are long"),
/// }
/// ```
///
/// An arm that shall not take part this time gets a receiver that never has a value:
///
/// ```
/// use mungo::chan::{bounded, never, select};
///
/// let (tx, rx) = bounded(1);
/// tx.send(1).unwrap();
/// let (enabled, off) = (false, never());
/// let chosen = select! {
///     recv(if enabled { &rx } else { &off }) -> v => v.ok(),
///     default => None,
/// };
/// assert_eq!(chosen, None);
/// ```
///
/// While the value of a chosen `send` arm is made, a receiver that was chosen as its partner waits for it. So make it
/// something short.
#[macro_export]
macro_rules! select {
    ($($arms:tt)*) => {
        $crate::__mungo_select!(@parse false [] () $($arms)*)
    };
}

/// As [`select!`](crate::chan::select!), but of several arms that can go on the first one is chosen.
///
/// ```
/// use mungo::chan::{bounded, select_biased};
///
/// let (urgent, now) = bounded(1);
/// let (patient, later) = bounded(1);
/// patient.send("later").unwrap();
/// urgent.send("now").unwrap();
/// let first = select_biased! {
///     recv(now) -> v => v,
///     recv(later) -> v => v,
/// };
/// assert_eq!(first, Ok("now"));
/// ```
#[macro_export]
macro_rules! select_biased {
    ($($arms:tt)*) => {
        $crate::__mungo_select!(@parse true [] () $($arms)*)
    };
}

/// `@parse BIASED [ARMS] (DEFAULT) TOKENS`: moves arm after arm to the list, as
/// `{kind port slot (handle) (value) (pattern) (body)}`. The names `port` and `slot` are made anew in each step and so
/// differ from arm to arm. Then `@run` chooses the kind of waiting, and `@go` writes the code.
#[doc(hidden)]
#[macro_export]
macro_rules! __mungo_select {
    (@parse $biased:tt $arms:tt $default:tt) => {
        $crate::__mungo_select!(@run $biased $arms $default)
    };

    // recv
    (@parse $biased:tt [$($arms:tt)*] $default:tt
        recv($handle:expr $(,)?) -> $pattern:pat => $body:expr, $($rest:tt)*) => {
        $crate::__mungo_select!(@parse $biased
            [$($arms)* {recv port slot ($handle) () ($pattern) ($body)}] $default $($rest)*)
    };
    (@parse $biased:tt [$($arms:tt)*] $default:tt
        recv($handle:expr $(,)?) -> $pattern:pat => $body:block $($rest:tt)*) => {
        $crate::__mungo_select!(@parse $biased
            [$($arms)* {recv port slot ($handle) () ($pattern) ($body)}] $default $($rest)*)
    };
    (@parse $biased:tt [$($arms:tt)*] $default:tt
        recv($handle:expr $(,)?) -> $pattern:pat => $body:expr) => {
        $crate::__mungo_select!(@parse $biased
            [$($arms)* {recv port slot ($handle) () ($pattern) ($body)}] $default)
    };

    // send
    (@parse $biased:tt [$($arms:tt)*] $default:tt
        send($handle:expr, $value:expr $(,)?) -> $pattern:pat => $body:expr, $($rest:tt)*) => {
        $crate::__mungo_select!(@parse $biased
            [$($arms)* {send port slot ($handle) ($value) ($pattern) ($body)}] $default $($rest)*)
    };
    (@parse $biased:tt [$($arms:tt)*] $default:tt
        send($handle:expr, $value:expr $(,)?) -> $pattern:pat => $body:block $($rest:tt)*) => {
        $crate::__mungo_select!(@parse $biased
            [$($arms)* {send port slot ($handle) ($value) ($pattern) ($body)}] $default $($rest)*)
    };
    (@parse $biased:tt [$($arms:tt)*] $default:tt
        send($handle:expr, $value:expr $(,)?) -> $pattern:pat => $body:expr) => {
        $crate::__mungo_select!(@parse $biased
            [$($arms)* {send port slot ($handle) ($value) ($pattern) ($body)}] $default)
    };

    // default
    (@parse $biased:tt $arms:tt $default:tt default => $($rest:tt)*) => {
        $crate::__mungo_select!(@parse $biased $arms $default default() => $($rest)*)
    };
    (@parse $biased:tt $arms:tt ($($default:tt)+) default $($rest:tt)*) => {
        compile_error!("a select has at most one `default` arm")
    };
    (@parse $biased:tt $arms:tt () default($($limit:expr)? $(,)?) => $body:expr, $($rest:tt)*) => {
        $crate::__mungo_select!(@parse $biased $arms (($($limit)?) ($body)) $($rest)*)
    };
    (@parse $biased:tt $arms:tt () default($($limit:expr)? $(,)?) => $body:block $($rest:tt)*) => {
        $crate::__mungo_select!(@parse $biased $arms (($($limit)?) ($body)) $($rest)*)
    };
    (@parse $biased:tt $arms:tt () default($($limit:expr)? $(,)?) => $body:expr) => {
        $crate::__mungo_select!(@parse $biased $arms (($($limit)?) ($body)))
    };

    (@parse $biased:tt $arms:tt $default:tt $($rest:tt)*) => {
        compile_error!(concat!(
            "expected `recv(r) -> result => body,`, `send(s, value) -> result => body,` or `default => body,` at `",
            stringify!($($rest)*), "`"
        ))
    };

    (@run $biased:tt [] ()) => {
        $crate::chan::__private::forever()
    };
    (@run $biased:tt [] (() ($body:expr))) => {
        $body
    };
    (@run $biased:tt [] (($limit:expr) ($body:expr))) => {{
        $crate::chan::__private::idle($limit);
        $body
    }};
    (@run $biased:tt $arms:tt ()) => {
        $crate::__mungo_select!(@go $biased $arms ($crate::chan::__private::Wait::Forever)
            (::core::unreachable!("a select without a limit chooses an arm")))
    };
    (@run $biased:tt $arms:tt (() $body:tt)) => {
        $crate::__mungo_select!(@go $biased $arms ($crate::chan::__private::Wait::No) $body)
    };
    (@run $biased:tt $arms:tt (($limit:expr) $body:tt)) => {
        $crate::__mungo_select!(@go $biased $arms ($crate::chan::__private::Wait::For($limit)) $body)
    };

    // The handles live as long as the `match`, and so do temporaries in their expressions.
    (@go $biased:tt
        [$({$kind:ident $port:ident $slot:ident ($handle:expr) ($($value:expr)?) ($pattern:pat) ($body:expr)})+]
        ($wait:expr) ($otherwise:expr)) => {
        match ($(&$handle,)+) {
            ($($port,)+) => {
                $($crate::__mungo_select!(@bind $kind $port $slot);)+
                let mut chosen = $crate::chan::__private::select(
                    &[$($crate::__mungo_select!(@arm $kind $port $slot)),+], $biased, $wait,
                );
                match () {
                    $(() if chosen.arrives() => {
                        let $pattern = $crate::__mungo_select!(@finish $kind $port $slot chosen ($($value)?));
                        $body
                    })+
                    () => $otherwise,
                }
            }
        }
    };

    // What is an `&&Receiver`, an `&Box<Receiver>` and the like becomes an `&Receiver`.
    (@bind recv $port:ident $slot:ident) => {
        let $port: &$crate::chan::Receiver<_> = $port;
        let $slot = $crate::chan::__private::Slot::new($port);
    };
    (@bind send $port:ident $slot:ident) => {
        let $port: &$crate::chan::Sender<_> = $port;
    };
    (@arm recv $port:ident $slot:ident) => {
        $crate::chan::__private::Arm::recv($port, &$slot)
    };
    (@arm send $port:ident $slot:ident) => {
        $crate::chan::__private::Arm::send($port)
    };
    (@finish recv $port:ident $slot:ident $chosen:ident ()) => {
        $chosen.received(&$slot)
    };
    (@finish send $port:ident $slot:ident $chosen:ident ($value:expr)) => {
        $chosen.ticket($port).send($value)
    };
}
