"""Rights and settings of the system."""

from benchmarks.reliability.escapes.case import Escape, calling


def _setting(name: str, path: str) -> Escape:
    return Escape(name, f"open('{path}', 'r+').read(1)\nprint('ESCAPED')\n")


def _calls(name: str, *calls: str) -> Escape:
    return calling(name, "\n".join(f"tried(libc.{call})" for call in calls))


SYSTEM = (
    _calls("mount a file system", "mount(b'x', b'/tmp', b'tmpfs', 0, None)"),
    _calls("mount the processes anew", "mount(b'proc', b'/proc', b'proc', 0, None)"),
    _calls("make the system writable", "mount(None, b'/usr', None, 0x1020, None)"),
    _calls("make the root writable", "mount(None, b'/', None, 0x20, None)"),
    _calls("unmount what hides the rest", "umount2(b'/proc', 2)", "umount2(b'/', 2)"),
    _calls(
        "mount by the newer calls",
        "syscall({nr_fsopen}, b'tmpfs', 0)",
        "syscall({nr_open_tree}, -100, b'/', 1)",
    ),
    _calls("turn the root around", "syscall({nr_pivot_root}, b'/tmp', b'/tmp')", "chroot(b'/tmp')"),
    calling(
        "namespaces of its own",
        "for bit in (7, 17, 25, 26, 27, 28, 29, 30): tried(libc.unshare(1 << bit))",
    ),
    _calls("a user namespace by clone", "syscall({nr_clone}, 0x10000011, 0, 0, 0, 0)"),
    _calls(
        "a user namespace by clone3",
        "syscall(435, ctypes.c_uint64.from_buffer(bytearray((1 << 28).to_bytes(8, 'little'))), 64)",
        "syscall(435, (ctypes.c_uint64 * 11)(1 << 28), 88)",
    ),
    calling(
        "enter the keeper's namespaces",
        """
        for name in ("mnt", "user", "net", "pid"):
            try:
                tried(libc.setns(os.open(f"/proc/1/ns/{name}", 0), 0))
            except OSError:
                pass
        tried(libc.setns(os.pidfd_open(1), 0x20000))
        """,
    ),
    _calls("become root", "setuid(0)", "setgid(0)", "setresuid(0, 0, 0)", "setgroups(0, None)"),
    Escape("become root by a program", "su -c 'echo ESCAPED' </dev/null; sudo -n id\n", "shell"),
    Escape(
        "have capabilities",
        """
        for line in open("/proc/self/status"):
            name, _, value = line.partition(":")
            if name in ("CapEff", "CapPrm", "CapAmb") and int(value, 16):
                print("ESCAPED", line)
            if (name, value.strip()) in (("NoNewPrivs", "0"), ("Seccomp", "0")):
                print("ESCAPED", line)
        """,
        outside=True,
    ),
    _calls(
        "keys of the kernel",
        "syscall({nr_add_key}, b'user', b'x', b'y', 1, -2)",
        "syscall({nr_keyctl}, 0, -3, 1)",
    ),
    _calls("set the clock", "clock_settime(0, ctypes.create_string_buffer(16))"),
    _calls(
        "programs for the kernel", "syscall({nr_bpf}, 0, (ctypes.c_uint32 * 16)(1, 4, 4, 1), 64)"
    ),
    _calls(
        "counters of the processor",
        "syscall({nr_perf_event_open}, (ctypes.c_uint32 * 32)(1, 112), 0, -1, -1, 0)",
    ),
    _calls(
        "answer its own page faults", "syscall({nr_userfaultfd}, 0)", "syscall({nr_userfaultfd}, 1)"
    ),
    _calls("queues of calls", "syscall(425, 8, ctypes.create_string_buffer(128))"),
    _calls("watch all files", "fanotify_init(0, 0)", "fanotify_init(0x200, 0)"),
    _calls(
        "open a file by its number", "open_by_handle_at(-100, ctypes.create_string_buffer(136), 0)"
    ),
    _calls("load a module", "syscall({nr_finit_module}, 0, b'', 0)"),
    _calls("read the kernel's log", "klogctl(3, ctypes.create_string_buffer(100), 100)"),
    _calls("name the machine", "sethostname(b'x', 1)"),
    _calls("another personality", "personality(0x0040000)"),
    _setting("where crashes go", "/proc/sys/kernel/core_pattern"),
    _setting("the kernel's memory", "/proc/kcore"),
    _setting("the kernel's log as a file", "/proc/kmsg"),
    _setting("the kernel's orders", "/proc/sysrq-trigger"),
    _setting("the limit of users", "/proc/sys/user/max_user_namespaces"),
    Escape("leave a picture of its memory", "import os\nos.abort()\n", ends=frozenset({"signal"})),
    Escape(
        "leave a big one",
        "import os, signal\nheld = bytes(50 << 20)\nos.kill(os.getpid(), signal.SIGSEGV)\n",
        ends=frozenset({"signal"}),
    ),
)
