//! The C library's own functions, for calls of plain threads that may wait: unlike a system call they are cancellation
//! points (`pthread_cancel`), and libraries that stand between this crate and the C library see the call.
//!
//! They are looked up before `main`: `dlsym` allocates, and the allocator may call a shim. An earlier call, and one
//! that the C library does not have, is the system call. Cancellation unwinds the stack, so shims that get here are
//! "C-unwind".

use mungo::interpose::Next;

/// Makes the shim return what the C library's function does, if a plain thread called it.
macro_rules! plain {
    ($name:ident($($value:ident: $type:ty),* $(,)?) -> $result:ty) => {
        if matches!(mungo::interpose::place(), mungo::interpose::Place::Thread)
            && let Some(at) = $crate::shims::plain::$name.known()
        {
            type Function = unsafe extern "C-unwind" fn($($type),*) -> $result;
            return std::mem::transmute::<usize, Function>(at)($($value),*);
        }
    };
}
pub(crate) use plain;

macro_rules! functions {
    ($($name:ident)*) => {
        $(#[allow(non_upper_case_globals)] pub(crate) static $name: Next = {
            match std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => Next::new(name),
                Err(_) => panic!("a name has no zeros"),
            }
        };)*
        static ALL: &[&Next] = &[$(&$name),*];
    };
}

functions! {
    accept accept4 clock_nanosleep connect epoll_pwait epoll_pwait2 epoll_wait fdatasync flock fsync
    mq_timedreceive mq_timedsend msgrcv msgsnd poll ppoll pread64 preadv preadv64 pselect pwrite pwrite64
    pwritev pwritev64 read readv recv recvfrom recvmmsg recvmsg select semop semtimedop send sendmmsg
    sendmsg sendto splice tee vmsplice wait4 waitid write writev
}

/// Looks them up, before `main`.
pub(super) fn look_up() {
    ALL.iter().for_each(|next| _ = next.get());
}
