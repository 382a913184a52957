//! Sockets: receive, send, accept, connect, and what changes how they block.

use crate::counters::{self, Counter};
use crate::shims::descriptors::changing;
use crate::shims::plain::plain;
use crate::shims::raw::{self, EAGAIN, EBADF, EINPROGRESS, EINTR, c, sys};
use crate::shims::wait::{Call, Limit, block, is_nonblocking, option_of, ready, timeout_ns};
use mungo::WaitReason;
use mungo::interpose::{Caller, Place, Slot, Wait, now_ns, place};
use mungo::sync::Semaphore;
use std::ffi::{c_int, c_void};

/// Receives.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn recv(fd: c_int, at: *mut c_void, len: usize, flags: c_int) -> isize {
    // SAFETY: by the caller; the C library's function has this type.
    unsafe { plain!(recv(fd: c_int, at: *mut c_void, len: usize, flags: c_int) -> isize) };
    // SAFETY: by the caller.
    unsafe { receive(&counters::recv, fd, at, len, flags, std::ptr::null_mut(), std::ptr::null_mut()) }
}

/// Receives, with the sender's address.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn recvfrom(
    fd: c_int,
    at: *mut c_void,
    len: usize,
    flags: c_int,
    from: *mut libc::sockaddr,
    from_len: *mut libc::socklen_t,
) -> isize {
    // SAFETY: by the caller; the C library's function has this type.
    unsafe {
        plain!(recvfrom(
            fd: c_int, at: *mut c_void, len: usize, flags: c_int, from: *mut libc::sockaddr,
            from_len: *mut libc::socklen_t
        ) -> isize)
    };
    // SAFETY: by the caller.
    unsafe { receive(&counters::recvfrom, fd, at, len, flags, from, from_len) }
}

/// Flags with which a call is left to the kernel: it does not wait, or waits for more than one arrival.
const RECEIVES_OTHERWISE: c_int = libc::MSG_DONTWAIT | libc::MSG_WAITALL | libc::MSG_ERRQUEUE | libc::MSG_OOB;

#[inline(always)]
unsafe fn receive(
    counter: &'static Counter,
    fd: c_int,
    at: *mut c_void,
    len: usize,
    flags: c_int,
    from: *mut libc::sockaddr,
    from_len: *mut libc::socklen_t,
) -> isize {
    // SAFETY: by the caller.
    let with = move |flags: c_int| unsafe { sys!(SYS_recvfrom, fd, at, len, flags, from, from_len) };
    let room = if flags == 0 { len } else { 0 };
    c(unless_unusual(Call { room, ..Call::read(fd, counter) }, flags, RECEIVES_OTHERWISE, with))
}

/// Receives a message.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn recvmsg(fd: c_int, message: *mut libc::msghdr, flags: c_int) -> isize {
    // SAFETY: by the caller; the C library's function has this type.
    unsafe { plain!(recvmsg(fd: c_int, message: *mut libc::msghdr, flags: c_int) -> isize) };
    // SAFETY: by the caller.
    let with = move |flags: c_int| unsafe { sys!(SYS_recvmsg, fd, message, flags) };
    c(unless_unusual(Call::read(fd, &counters::recvmsg), flags, RECEIVES_OTHERWISE, with))
}

/// Runs a call that is made `with` its flags on a goroutine. On a plain thread, or with unusual flags, makes it as it
/// is.
#[inline(always)]
fn unless_unusual(call: Call, flags: c_int, unusual: c_int, with: impl Fn(c_int) -> i64 + Copy) -> i64 {
    match place() {
        Place::Goroutine(caller) if flags & unusual == 0 => {
            call.run(caller, move || with(flags | libc::MSG_DONTWAIT), move || with(flags))
        }
        place => as_it_is(call.counter, place, flags, with),
    }
}

/// Makes a call with its flags. One that waits for all its bytes is announced.
#[inline(always)]
fn as_it_is(counter: &'static Counter, place: Place, flags: c_int, with: impl Fn(c_int) -> i64) -> i64 {
    match place {
        Place::Goroutine(caller) if flags & libc::MSG_WAITALL != 0 => {
            counter.fall_back();
            block(caller, move || with(flags))
        }
        _ => with(flags),
    }
}

/// Sends.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn send(fd: c_int, at: *const c_void, len: usize, flags: c_int) -> isize {
    // SAFETY: by the caller; the C library's function has this type.
    unsafe { plain!(send(fd: c_int, at: *const c_void, len: usize, flags: c_int) -> isize) };
    // SAFETY: by the caller.
    unsafe { send_all(&counters::send, fd, at, len, flags, std::ptr::null(), 0) }
}

/// Sends to an address.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn sendto(
    fd: c_int,
    at: *const c_void,
    len: usize,
    flags: c_int,
    to: *const libc::sockaddr,
    to_len: libc::socklen_t,
) -> isize {
    // SAFETY: by the caller; the C library's function has this type.
    unsafe {
        plain!(sendto(
            fd: c_int, at: *const c_void, len: usize, flags: c_int, to: *const libc::sockaddr,
            to_len: libc::socklen_t
        ) -> isize)
    };
    // SAFETY: by the caller.
    unsafe { send_all(&counters::sendto, fd, at, len, flags, to, to_len) }
}

/// Sends all, as a socket that blocks does.
#[inline(always)]
unsafe fn send_all(
    counter: &'static Counter,
    fd: c_int,
    at: *const c_void,
    len: usize,
    flags: c_int,
    to: *const libc::sockaddr,
    to_len: libc::socklen_t,
) -> isize {
    let part = move |done: usize, flags: c_int| {
        // SAFETY: by the caller; `done` of the bytes are behind us.
        unsafe { sys!(SYS_sendto, fd, at.byte_add(done), len - done, flags, to, to_len) }
    };
    c(match place() {
        Place::Goroutine(caller) if flags & libc::MSG_DONTWAIT == 0 => {
            let attempt = move |done| match part(done, flags | libc::MSG_DONTWAIT) {
                EAGAIN if !to.is_null() && is_unix(fd) => LEAVE,
                result => result,
            };
            let kernel = move |done| part(done, flags);
            unless_left(counter, caller, all_of(Call::write(fd, counter), caller, len, attempt, kernel), kernel)
        }
        place => as_it_is(counter, place, flags, move |flags| part(0, flags)),
    })
}

/// What a try returns if the call is to be left to the kernel.
const LEAVE: i64 = i64::MIN;

/// Makes the call that a try left to the kernel: a datagram to a Unix socket that is full. There is nothing to wait
/// for: the poller tells of the receiver that a socket is connected to, not of one that a datagram names.
#[inline(always)]
fn unless_left(
    counter: &'static Counter,
    caller: Caller,
    result: i64,
    kernel: impl FnOnce(usize) -> i64,
) -> i64 {
    if result != LEAVE {
        return result;
    }
    counter.fall_back();
    block(caller, || kernel(0))
}

/// Returns whether a message names its receiver. The first bytes of a `mmsghdr` are a `msghdr`.
#[cold]
fn is_named(message: *const libc::msghdr) -> bool {
    raw::copy(message).is_some_and(|message| !message.msg_name.is_null())
}

/// Returns whether the descriptor is a Unix socket.
#[cold]
fn is_unix(fd: c_int) -> bool {
    option_of(fd, libc::SO_DOMAIN) == Some(libc::AF_UNIX)
}

/// Repeats a call, `part` from how much is done, until all is done or there is an error or a time-out. Returns how much
/// was done; if nothing was, the error. An error that comes later is left for the next call.
#[inline(always)]
pub(crate) fn all_of(
    call: Call,
    caller: Caller,
    len: usize,
    part: impl Fn(usize) -> i64,
    kernel: impl Fn(usize) -> i64,
) -> i64 {
    let wait = call.begin();
    let first = part(0);
    if first != EAGAIN && (first <= 0 || first as usize >= len) {
        if first != LEAVE {
            call.counter.pass();
        }
        return first;
    }
    rest_of(call, caller, wait, len, first, part, kernel)
}

/// Does as [`all_of`], after a first try that did not write all.
#[cold]
#[inline(never)]
fn rest_of(
    call: Call,
    caller: Caller,
    wait: Option<Wait>,
    len: usize,
    first: i64,
    part: impl Fn(usize) -> i64,
    kernel: impl Fn(usize) -> i64,
) -> i64 {
    let done = std::cell::Cell::new(first.max(0) as usize);
    let advance = |result: i64| {
        if result > 0 {
            done.set(done.get() + result as usize);
        }
        result
    };
    let result = call.run_slow(
        caller,
        wait,
        || {
            // A try would take the error away, and might send SIGPIPE; the kernel keeps it for the next call.
            if done.get() > 0 && ready(call.fd, 0) {
                return 0;
            }
            match advance(part(done.get())) {
                more if more > 0 && done.get() < len => EAGAIN,
                last => last,
            }
        },
        || advance(kernel(done.get())),
    );
    if done.get() > 0 { done.get() as i64 } else { result }
}

/// Sends a message. It may be sent in part only, if there is no room for all of it.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn sendmsg(fd: c_int, message: *const libc::msghdr, flags: c_int) -> isize {
    // SAFETY: by the caller; the C library's function has this type.
    unsafe { plain!(sendmsg(fd: c_int, message: *const libc::msghdr, flags: c_int) -> isize) };
    // SAFETY: by the caller.
    let with = move |flags: c_int| unsafe { sys!(SYS_sendmsg, fd, message, flags) };
    let Place::Goroutine(caller) = place() else { return c(with(flags)) };
    if flags & libc::MSG_DONTWAIT != 0 {
        return c(with(flags));
    }
    let attempt = move || match with(flags | libc::MSG_DONTWAIT) {
        EAGAIN if is_unix(fd) && is_named(message) => LEAVE,
        result => result,
    };
    let counter = &counters::sendmsg;
    let result = Call::write(fd, counter).run(caller, attempt, move || with(flags));
    c(unless_left(counter, caller, result, |_| with(flags)))
}

/// Receives messages: as many as there is room for, or those that are there, if one is. With a time-out, which the
/// kernel looks at after each message, the call is the kernel's.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn recvmmsg(
    fd: c_int,
    messages: *mut libc::mmsghdr,
    n: libc::c_uint,
    flags: c_int,
    time: *mut libc::timespec,
) -> c_int {
    // SAFETY: by the caller; the C library's function has this type.
    unsafe {
        plain!(recvmmsg(
            fd: c_int, messages: *mut libc::mmsghdr, n: libc::c_uint, flags: c_int, time: *mut
            libc::timespec
        ) -> c_int)
    };
    let part = move |done: usize, flags: c_int| {
        // SAFETY: by the caller; `done` of the messages are behind us.
        unsafe { sys!(SYS_recvmmsg, fd, messages.wrapping_add(done), n as usize - done, flags, time) }
    };
    let counter = &counters::recvmmsg;
    c(match place() {
        Place::Goroutine(caller) if flags & RECEIVES_OTHERWISE == 0 && time.is_null() => {
            let call = Call::read(fd, counter);
            let attempt = move |done| part(done, flags | libc::MSG_DONTWAIT);
            match flags & libc::MSG_WAITFORONE {
                0 => all_of(call, caller, n as usize, attempt, move |done| part(done, flags)),
                _ => call.run(caller, move || attempt(0), move || part(0, flags)),
            }
        }
        Place::Goroutine(caller) if flags & libc::MSG_DONTWAIT == 0 => {
            counter.fall_back();
            block(caller, || part(0, flags))
        }
        _ => part(0, flags),
    }) as c_int
}

/// Sends messages, all of them.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn sendmmsg(
    fd: c_int,
    messages: *mut libc::mmsghdr,
    n: libc::c_uint,
    flags: c_int,
) -> c_int {
    // SAFETY: by the caller; the C library's function has this type.
    unsafe {
        plain!(sendmmsg(fd: c_int, messages: *mut libc::mmsghdr, n: libc::c_uint, flags: c_int) -> c_int)
    };
    let part = move |done: usize, flags: c_int| {
        // SAFETY: by the caller; `done` of the messages are behind us.
        unsafe { sys!(SYS_sendmmsg, fd, messages.wrapping_add(done), n as usize - done, flags) }
    };
    let counter = &counters::sendmmsg;
    c(match place() {
        Place::Goroutine(caller) if flags & libc::MSG_DONTWAIT == 0 => {
            let attempt = move |done| match part(done, flags | libc::MSG_DONTWAIT) {
                EAGAIN if is_unix(fd) && is_named(messages.wrapping_add(done).cast()) => LEAVE,
                result => result,
            };
            let kernel = move |done| part(done, flags);
            let result = all_of(Call::write(fd, counter), caller, n as usize, attempt, kernel);
            unless_left(counter, caller, result, kernel)
        }
        _ => part(0, flags),
    }) as c_int
}

/// Accepts a connection, as `accept4` without flags.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn accept(fd: c_int, from: *mut libc::sockaddr, len: *mut libc::socklen_t) -> c_int {
    // SAFETY: by the caller; the C library's function has this type.
    unsafe { plain!(accept(fd: c_int, from: *mut libc::sockaddr, len: *mut libc::socklen_t) -> c_int) };
    // SAFETY: by the caller.
    unsafe { accept_with(&counters::accept, fd, from, len, 0) }
}

/// Accepts a connection.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn accept4(
    fd: c_int,
    from: *mut libc::sockaddr,
    len: *mut libc::socklen_t,
    flags: c_int,
) -> c_int {
    // SAFETY: by the caller; the C library's function has this type.
    unsafe {
        plain!(accept4(fd: c_int, from: *mut libc::sockaddr, len: *mut libc::socklen_t, flags: c_int) -> c_int)
    };
    // SAFETY: by the caller.
    unsafe { accept_with(&counters::accept4, fd, from, len, flags) }
}

/// Accepts. The kernel has no flag for a try, so it is asked first whether there is a connection, by one goroutine at a
/// time. Should a thread or another process take it in between, this one waits in the kernel for the next, and others
/// that accept from the same descriptor wait behind it. WHY NOT announced: it seldom happens, and the monitor sees it.
unsafe fn accept_with(
    counter: &'static Counter,
    fd: c_int,
    from: *mut libc::sockaddr,
    len: *mut libc::socklen_t,
    flags: c_int,
) -> c_int {
    // SAFETY: by the caller.
    let kernel = || unsafe { sys!(SYS_accept4, fd, from, len, flags) };
    let Place::Goroutine(caller) = place() else { return c(kernel()) as c_int };
    if fd < 0 || Slot::find(fd).is_some_and(Slot::is_nets) || !caller.may_suspend() {
        return c(kernel()) as c_int;
    }
    let Some(slot) = Slot::of(fd) else { return c(block(caller, kernel)) as c_int };
    let attempt = || {
        let _only = slot.alone();
        if ready(fd, libc::POLLIN) { kernel() } else { EAGAIN }
    };
    let call = Call { reason: WaitReason::NetAccept, ..Call::read(fd, counter) };
    c(call.run(caller, attempt, kernel)) as c_int
}

/// Connects. The kernel has no flag for a try. So a TCP socket gets the shortest time-out there is, a tick of the
/// kernel's clock (1 to 4 ms), for the length of the call; after that the kernel goes on connecting, and the goroutine
/// waits. At most [`AT_ONCE`] goroutines are in that call at a time, each with a thread.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn connect(fd: c_int, to: *const libc::sockaddr, len: libc::socklen_t) -> c_int {
    // SAFETY: by the caller; the C library's function has this type.
    unsafe { plain!(connect(fd: c_int, to: *const libc::sockaddr, len: libc::socklen_t) -> c_int) };
    // SAFETY: by the caller.
    let kernel = || unsafe { sys!(SYS_connect, fd, to, len) };
    let Place::Goroutine(caller) = place() else { return c(kernel()) as c_int };
    let counter = &counters::connect;
    // An address that cannot be read is the kernel's to refuse.
    let family = if len >= 2 { raw::copy(to.cast::<libc::sa_family_t>()).unwrap_or(0) } else { 0 };
    let is_inet = matches!(c_int::from(family), libc::AF_INET | libc::AF_INET6);
    if Slot::find(fd).is_some_and(Slot::is_nets) || is_nonblocking(fd) {
        counter.pass();
        return c(kernel()) as c_int;
    }
    if !is_inet || !caller.may_suspend() {
        counter.fall_back();
        return c(block(caller, kernel)) as c_int;
    }
    let started_ns = now_ns();
    let (timeout_ns, result) = {
        // Another goroutine that connects the same socket would take the short time-out for the program's.
        let _only = Slot::of(fd).map(Slot::alone);
        let timeout_ns = timeout_ns(fd, libc::SO_SNDTIMEO);
        let _turn = TURNS.acquire();
        let _short = ShortTimeout::new(fd);
        (timeout_ns, mungo::blocking(kernel))
    };
    if result != EINPROGRESS && result != EINTR {
        counter.pass();
        return c(result) as c_int;
    }
    let limit = Limit::Until(started_ns.saturating_add(timeout_ns));
    let call = Call { reason: WaitReason::NetConnect, limit, ..Call::write(fd, counter) };
    let settled = || if ready(fd, libc::POLLOUT) { connected(fd) } else { EAGAIN };
    let finish = || {
        // The goroutine cannot wait: its thread does.
        let mut ask = libc::pollfd { fd, events: libc::POLLOUT, revents: 0 };
        let ms = if timeout_ns == u64::MAX { -1 } else { (timeout_ns / 1_000_000) as c_int };
        // SAFETY: `ask` outlives the call.
        if unsafe { raw::poll(&raw mut ask, 1, ms) } > 0 { connected(fd) } else { EAGAIN }
    };
    // The kernel says of a connection that is not there in time that it is under way.
    c(match call.run(caller, settled, finish) {
        EAGAIN => EINPROGRESS,
        result => result,
    }) as c_int
}

/// Number of goroutines that may block their threads to begin a connection. TUNED: guess: 2,000 connections a second to
/// hosts that are far away.
const AT_ONCE: usize = 8;

static TURNS: Semaphore = Semaphore::new(AT_ONCE);

/// Returns how the attempt to connect ended: 0 or the error.
fn connected(fd: c_int) -> i64 {
    option_of(fd, libc::SO_ERROR).map_or(EBADF, |error| -i64::from(error))
}

/// The shortest time-out for a call that sends or connects, until it is dropped.
struct ShortTimeout {
    fd: c_int,
    before: libc::timeval,
}

impl ShortTimeout {
    fn new(fd: c_int) -> ShortTimeout {
        let mut before = libc::timeval { tv_sec: 0, tv_usec: 0 };
        let mut len = size_of::<libc::timeval>() as libc::socklen_t;
        let short = libc::timeval { tv_sec: 0, tv_usec: 1 };
        // SAFETY: room for as many bytes as the length says; the time outlives the call.
        unsafe {
            sys!(SYS_getsockopt, fd, libc::SOL_SOCKET, libc::SO_SNDTIMEO, &raw mut before, &raw mut len);
            sys!(SYS_setsockopt, fd, libc::SOL_SOCKET, libc::SO_SNDTIMEO, &raw const short, len);
        }
        ShortTimeout { fd, before }
    }
}

impl Drop for ShortTimeout {
    fn drop(&mut self) {
        let len = size_of::<libc::timeval>();
        // SAFETY: the time outlives the call.
        unsafe {
            sys!(SYS_setsockopt, self.fd, libc::SOL_SOCKET, libc::SO_SNDTIMEO, &raw const self.before, len)
        };
    }
}

/// The options that are time-outs: the last two for times of 64 bits, of which x86-64 and aarch64 have no others.
const TIMEOUTS: [c_int; 4] = [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO, 66, 67];

/// Sets an option of a socket, which may be a time-out.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn setsockopt(
    fd: c_int,
    level: c_int,
    option: c_int,
    value: *const c_void,
    len: libc::socklen_t,
) -> c_int {
    // SAFETY: by the caller.
    let set = || unsafe { sys!(SYS_setsockopt, fd, level, option, value, len) };
    let is_timeout = level == libc::SOL_SOCKET && TIMEOUTS.contains(&option);
    c(if is_timeout { changing(set) } else { set() }) as c_int
}
