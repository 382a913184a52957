//! Reads what a signal interrupted, from the context that the kernel passes to the handler.

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
use super::page_size;
use std::ffi::c_void;

/// Returns the address of the interrupted instruction.
pub(crate) fn program_counter(context: *mut c_void) -> usize {
    // SAFETY: the kernel passes a `ucontext_t`.
    let context = unsafe { &*context.cast::<libc::ucontext_t>() };
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    return context.uc_mcontext.gregs[libc::REG_RIP as usize] as usize;
    #[cfg(all(target_arch = "aarch64", target_os = "linux"))]
    return context.uc_mcontext.pc as usize;
    #[cfg(not(mungo_native))]
    {
        _ = context;
        0
    }
}

/// Returns whether the signal hit a blocked system call: the kernel will restart it (the program counter is at the
/// instruction), or it returns EINTR (just after it).
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
pub(crate) fn in_system_call(context: *mut c_void) -> bool {
    const SYSCALL: [u8; 2] = [0x0f, 0x05];
    let at = program_counter(context) as *const [u8; 2];
    // SAFETY: code that was about to run can be read; the kernel's context is valid. The second byte is read only if
    // the first says that there is one: another instruction may be the last byte of its mapping. What lies before the
    // instruction is read only if it is on the same page: RAX may have this value by chance, and the instruction be the
    // first of its mapping. (A call that ends with its page is not known by that. It returns EINTR, as any would.)
    unsafe {
        let result = (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs[libc::REG_RAX as usize];
        (at.cast::<u8>().read() == SYSCALL[0] && at.read() == SYSCALL)
            || (result == -i64::from(libc::EINTR)
                && at.addr() % page_size() >= size_of_val(&SYSCALL)
                && at.sub(1).read() == SYSCALL)
    }
}

/// Calls that the kernel never restarts after a signal, and that can be made again: they have done nothing when they
/// return EINTR. Those that read, write, send and receive are here for sockets with a time-out (`SO_RCVTIMEO`); the
/// kernel restarts others. Sorted by what they wait for.
///
/// WHY NOT `connect`, which goes on in the kernel and must not begin anew; `pause` and `sigsuspend`, which a signal is
/// to end; `io_uring_enter`, which may have begun something.
#[cfg(mungo_native)]
const REPEATABLE: [i64; 27] = [
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_preadv2,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_pwritev2,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_recvmmsg,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_sendmmsg,
    libc::SYS_accept4,
    libc::SYS_sendfile,
    libc::SYS_splice,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_msgrcv,
    libc::SYS_msgsnd,
    libc::SYS_io_getevents,
];

/// Repeats a system call that the signal hit and that is never restarted after one. The monitor saw a thread that did
/// not sleep, but it had just begun such a call, or had not yet returned from one. It makes the call once more instead
/// of returning EINTR: glibc loads the call's number just before, and the kernel has kept the arguments. The kernel has
/// brought the time-outs of `select`, `pselect` and `ppoll` up to date, and that of `nanosleep` if the remaining time
/// is to go where the wanted one is, as in `std::thread::sleep`; a sleep until a point in time ends when it should.
/// All other time-outs begin anew: each time that such a call is hit, it takes longer by the time that was over.
///
/// Rejected: a closer look at the thread before the signal (how often it slept, by `/proc`). It costs the mixed web
/// server a tenth of its requests, and a call that begins at the very moment is interrupted all the same.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
pub(crate) fn repeat_call(context: *mut c_void) {
    /// `mov eax, number`, and the prefix that would make it `mov r8d, number`.
    const LOAD: u8 = 0xb8;
    const PREFIX: u8 = 0x41;
    /// Bytes of this instruction and `syscall`.
    const LENGTH: usize = 7;
    const CALLS: [i64; 4] = [libc::SYS_poll, libc::SYS_select, libc::SYS_epoll_wait, libc::SYS_accept];
    // SAFETY: the kernel's context is valid. Code that has just run can be read, and so can what lies on the same page.
    unsafe {
        let registers = &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs;
        let after = registers[libc::REG_RIP as usize] as usize;
        let interrupted = registers[libc::REG_RAX as usize] == -i64::from(libc::EINTR);
        if !interrupted || after % page_size() <= LENGTH {
            return;
        }
        let [prefix, load, number @ ..] = *((after - LENGTH - 1) as *const [u8; 6]);
        let number = i64::from(u32::from_le_bytes(number));
        if load == LOAD && prefix != PREFIX && (REPEATABLE.contains(&number) || CALLS.contains(&number)) {
            registers[libc::REG_RIP as usize] -= LENGTH as i64;
        }
    }
}

#[cfg(not(mungo_native))]
pub(crate) fn repeat_call(_context: *mut c_void) {}

/// Makes a system call that the handler can repeat: see [`repeat_call`].
///
/// # Safety
/// As the system call with this number.
#[cfg(all(mungo_own_tls, target_arch = "aarch64"))]
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn repeatable_call(
    _: usize,
    _: usize,
    _: usize,
    _: usize,
    _: usize,
    _: usize,
    number: usize,
) -> isize {
    std::arch::naked_asm!("hint #34", "mov x8, x6", ".p2align 3", "mov x9, x0", "svc #0", "ret")
}

/// Does the same on aarch64, for calls that have a copy of their first argument, in whose register, x0, the kernel
/// returns the result; it keeps all others. Such calls are [`repeatable_call`], for `waiting.rs`, and those that
/// `mungo-interpose` makes. The two instructions lie side by side in eight aligned bytes, and so on one page.
#[cfg(all(target_arch = "aarch64", target_os = "linux"))]
pub(crate) fn repeat_call(context: *mut c_void) {
    const COPY: u64 = 0xaa00_03e9; // mov x9, x0
    const SVC: u64 = 0xd400_0001; // svc #0
    const SVC_LEN: u64 = 4;
    const CALLS: [i64; 1] = [libc::SYS_accept];
    // SAFETY: the kernel's context is valid.
    let registers = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext };
    let is_interrupted = registers.regs[0] as i64 == -i64::from(libc::EINTR);
    let number = registers.regs[8] as i64;
    let is_repeatable = REPEATABLE.contains(&number) || CALLS.contains(&number);
    if !is_interrupted || !is_repeatable || !registers.pc.is_multiple_of(8) {
        return;
    }
    // SAFETY: code that has just run can be read, and so can what lies on the same page.
    if unsafe { (registers.pc as *const u64).sub(1).read() } == SVC << 32 | COPY {
        registers.regs[0] = registers.regs[9];
        registers.pc -= SVC_LEN;
    }
}

/// Returns the same on aarch64: `svc #0`, the result in x0.
#[cfg(all(target_arch = "aarch64", target_os = "linux"))]
pub(crate) fn in_system_call(context: *mut c_void) -> bool {
    const SVC: u32 = 0xd400_0001;
    let at = program_counter(context) as *const u32;
    // SAFETY: as on x86-64.
    unsafe {
        let result = (*context.cast::<libc::ucontext_t>()).uc_mcontext.regs[0] as i64;
        at.read() == SVC
            || (result == -i64::from(libc::EINTR)
                && at.addr() % super::page_size() >= size_of_val(&SVC)
                && at.sub(1).read() == SVC)
    }
}

#[cfg(not(mungo_native))]
pub(crate) fn in_system_call(_context: *mut c_void) -> bool {
    false
}

/// Returns the signals that were blocked in the interrupted code, one bit each.
pub(crate) fn signal_mask(context: *mut c_void) -> u64 {
    // SAFETY: the kernel passes a `ucontext_t`, and fills the first 64 signals of its mask.
    unsafe { (&raw const (*context.cast::<libc::ucontext_t>()).uc_sigmask).cast::<u64>().read() }
}

/// Returns the signals that are blocked in the calling thread, one bit each.
pub(crate) fn own_signal_mask() -> u64 {
    let mut mask = 0_u64;
    // SAFETY: the kernel writes the eight bytes that it is told of.
    unsafe {
        libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_BLOCK, 0, &raw mut mask, size_of::<u64>());
    }
    mask
}
