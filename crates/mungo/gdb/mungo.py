"""Goroutines of mungo in gdb, of a process that runs and of a core file.

    (gdb) source mungo.py
    (gdb) mungo goroutines            a line for each: number, name, what it does, where
    (gdb) mungo goroutine 7 bt        its stack
    (gdb) mungo goroutine 7 COMMAND   any command of gdb with its stack in place of a thread's: info locals, frame 3
    (gdb) mungo goroutine all bt      of all

It reads `mungo_layout_of_goroutines` of the program, so that line tables are enough, and a stripped program too little.
Suspended goroutines have stacks on x86-64 Linux; those that run are their threads'.
"""

import re

import gdb
from gdb.unwinder import Unwinder

VERSION = 1
STATES = {1: "runnable", 2: "runnable", 3: "waiting", 4: "waiting"}  # 0: idle, 5: dead
FIELDS = ("version chunks size_of_g state m slot coro reason id name interrupted_at announced g_of_m tid_of_m").split()
ABSENT = 2**64 - 1
HASH = re.compile("::h[0-9a-f]{16}$")
SWITCH = "stack/coro/x86_64.rs"  # the file of the innermost frame; the runtime's other files are beside it


def in_c(what):
    """What `what` returns while expressions and types are C's: those of Rust have other names."""
    before = gdb.parameter("language")
    gdb.execute("set language c", to_string=True)
    try:
        return what()
    finally:
        gdb.execute(f"set language {before}", to_string=True)


def read(address, size=8):
    data = bytes(gdb.selected_inferior().read_memory(address, size))
    return int.from_bytes(data, "little")


def text(address, size):
    return bytes(gdb.selected_inferior().read_memory(address, size)).decode("utf-8", "replace")


class Layout:
    """The offsets that the program was built with."""

    def __init__(self):
        try:
            found = in_c(lambda: gdb.parse_and_eval("(unsigned long)&mungo_layout_of_goroutines"))
            UNWINDER.kind = in_c(lambda: gdb.lookup_type("unsigned long"))
        except gdb.error:
            raise gdb.GdbError("mungo: no symbol mungo_layout_of_goroutines: is it a program with mungo, not stripped?")
        base = int(found) & ABSENT
        for at, field in enumerate(FIELDS):
            setattr(self, field, read(base + 8 * at))
        if self.version != VERSION:
            raise gdb.GdbError(f"mungo: the program has layout {self.version}, this script knows {VERSION}")
        self.reasons_at = base + 8 * len(FIELDS)

    def reason_text(self, number):
        word = self.reasons_at + 16 * number
        return text(read(word), read(word + 8))

    def goroutines(self):
        chunk = self.chunks
        while chunk:
            first, count, chunk = read(chunk), read(chunk + 8), read(chunk + 16)
            for at in range(count):
                g = Goroutine(self, first + at * self.size_of_g)
                if g.word in STATES:
                    yield g


class Goroutine:
    def __init__(self, layout, address):
        self.layout, self.address = layout, address
        self.word = self.field("state", 4)

    def field(self, name, size=8):
        return read(self.address + getattr(self.layout, name), size)

    @property
    def id(self):
        return self.field("id")

    @property
    def name(self):
        """The address of an `Arc<str>`, or null: an address and a length; the text is behind two counts."""
        named = self.field("name")
        if not named:
            return ""
        address, size = read(named), read(named + 8)
        return text(address + 16, size) if address and size < 4096 else ""

    def thread(self):
        """The thread that runs it, or None."""
        m = self.field("m")
        if not m or read(m + self.layout.g_of_m) != self.address:
            return None
        tid = read(m + self.layout.tid_of_m, 4)
        return next((t for t in gdb.selected_inferior().threads() if t.ptid[1] == tid), None)

    def state(self):
        if self.word in (3, 4):
            return self.layout.reason_text(self.field("reason", 1))
        if self.thread():
            return "blocking call" if self.field("announced", 1) else "running"
        return "preempted" if self.field("interrupted_at") else "runnable"

    def registers(self):
        """Where it goes on: what the switch left on its stack."""
        if not self.field("slot"):
            raise gdb.GdbError(f"mungo: goroutine {self.id} has not begun, and has no stack yet")
        if self.layout.coro == ABSENT:
            raise gdb.GdbError("mungo: this platform keeps the registers of suspended goroutines elsewhere")
        sp = self.field("coro")
        return {"rip": read(sp), "rbp": read(sp + 8), "rbx": read(sp + 16), "rsp": sp + 24}


class FrameId:
    def __init__(self, sp, pc):
        self.sp, self.pc = sp, pc


class InPlace(Unwinder):
    """Makes a suspended goroutine the caller of the selected thread's innermost frame; nothing is written."""

    def __init__(self):
        super().__init__("mungo goroutine")
        self.registers = self.kind = None

    def __call__(self, frame):
        if self.registers is None or frame.level() != 0:
            return None
        sp, pc = frame.read_register("rsp"), frame.read_register("rip")
        info = frame.create_unwind_info(FrameId(sp, pc))
        for register, value in self.registers.items():
            info.add_saved_register(register, gdb.Value(value).cast(self.kind))
        return info

    def run(self, registers, command):
        """Runs a command on the goroutine's stack, and returns what it prints, without the frame that is the thread's."""
        self.registers = registers
        gdb.invalidate_cached_frames()
        try:
            gdb.newest_frame().older().select()
            printed = gdb.execute(command, to_string=True)
        finally:
            self.registers = None
            gdb.invalidate_cached_frames()
            gdb.newest_frame().select()
        return "".join(line for line in printed.splitlines(True) if not line.startswith("#0 "))

    def place(self, registers):
        """The innermost function that is neither the runtime's nor std's."""
        self.registers = registers
        gdb.invalidate_cached_frames()
        try:
            frame, runtime = gdb.newest_frame().older(), None
            for _ in range(64):
                line = frame.find_sal() if frame else None
                if not line or not line.symtab:
                    break
                file = line.symtab.filename
                if file.endswith(SWITCH):
                    runtime = file[: -len(SWITCH)]
                elif not (runtime and file.startswith(runtime)) and "/library/" not in file:
                    return f"{HASH.sub('', frame.name() or '?')} at {file}:{line.line}"
                frame = frame.older()
        except gdb.error:
            pass
        finally:
            self.registers = None
            gdb.invalidate_cached_frames()
        return ""


UNWINDER = InPlace()


class Mungo(gdb.Command):
    """Goroutines of mungo: `mungo goroutines`, `mungo goroutine N COMMAND`."""

    def __init__(self):
        super().__init__("mungo", gdb.COMMAND_STACK, gdb.COMPLETE_NONE, True)


class Goroutines(gdb.Command):
    """Lists all goroutines: number, name, what each does, and where in the program."""

    def __init__(self):
        super().__init__("mungo goroutines", gdb.COMMAND_STACK)

    def invoke(self, argument, from_tty):
        count = 0
        for g in Layout().goroutines():
            thread, where = g.thread(), ""
            if thread:
                where = f"thread {thread.num}"
            elif g.field("slot") and g.layout.coro != ABSENT:
                where = UNWINDER.place(g.registers())
            name = f" '{g.name}'" if g.name else ""
            print(f"{g.id:8}{name} [{g.state()}] {where}".rstrip())
            count += 1
        print(f"{count} goroutines")


class OneGoroutine(gdb.Command):
    """mungo goroutine N COMMAND: runs a command of gdb on the stack of goroutine N; `all` for all; bt unless said."""

    def __init__(self):
        super().__init__("mungo goroutine", gdb.COMMAND_STACK)

    def invoke(self, argument, from_tty):
        which, _, command = argument.strip().partition(" ")
        if which != "all" and not which.isdigit():
            raise gdb.GdbError("mungo: write `mungo goroutine N bt`, with a number of `mungo goroutines`, or `all`")
        chosen = [g for g in Layout().goroutines() if which == "all" or g.id == int(which)]
        if not chosen:
            raise gdb.GdbError(f"mungo: there is no goroutine {which}; `mungo goroutines` lists them")
        for g in chosen:
            if which == "all":
                print(f"goroutine {g.id} [{g.state()}]")
            try:
                self.run(g, command.strip() or "bt")
            except gdb.GdbError as e:
                if which != "all":
                    raise
                print(e)

    def run(self, g, command):
        thread = g.thread()
        if not thread:
            print(UNWINDER.run(g.registers(), command), end="")
            return
        before = gdb.selected_thread()
        thread.switch()
        try:
            gdb.execute(command)
        finally:
            before.switch()


gdb.unwinder.register_unwinder(None, UNWINDER, replace=True)
Mungo()
Goroutines()
OneGoroutine()
