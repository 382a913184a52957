// What LLVM's unwinder, as Debian has built it for glibc, calls and musl does not have. See ../elsewhere.sh.
#include <stdarg.h>
#include <stdio.h>

int __fprintf_chk(FILE *to, int flag, const char *format, ...) {
    va_list values;
    (void)flag;
    va_start(values, format);
    int written = vfprintf(to, format, values);
    va_end(values);
    return written;
}
