//! The C library's own functions behind those of this crate.

/// Calls the C library's function of this name, with the type `fn(arguments) -> c_int`. `ENOSYS` if there is none.
macro_rules! next {
    ($name:ident($($value:ident: $type:ty),*)) => {{
        static NEXT: mungo::interpose::Next = {
            const NAME: &std::ffi::CStr =
                match std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                    Ok(name) => name,
                    Err(_) => panic!("a name has no zeros"),
                };
            mungo::interpose::Next::new(NAME)
        };
        match NEXT.get() {
            0 => libc::ENOSYS,
            at => {
                type Function = unsafe extern "C-unwind" fn($($type),*) -> std::ffi::c_int;
                std::mem::transmute::<usize, Function>(at)($($value),*)
            }
        }
    }};
}
pub(crate) use next;
