"""Processes: to see, stop, trace or outlive others."""

from benchmarks.reliability.escapes.case import Escape, calling

_END = frozenset({"exit"})

PROCESSES = (
    Escape("end the keeper", "import os\nos.kill(1, 9)\nos.kill(os.getppid(), 9)\n", ends=_END),
    Escape(
        "end the keeper by every signal",
        "import os\nfor n in range(1, 65):\n    try: os.kill(1, n)\n    except OSError: pass\n",
        ends=_END,
    ),
    Escape("stop the keeper", "import os, signal\nos.kill(1, signal.SIGSTOP)\n", ends=_END),
    Escape("end everyone", "import os\nos.kill(-1, 9)\n", ends=_END),
    Escape(
        "end a process of the user",
        "import os\nos.kill({process}, 9)\nprint('ESCAPED')\n",
    ),
    Escape(
        "see the processes of the machine",
        "import os\nseen = [each for each in os.listdir('/proc') if each.isdigit()]\n"
        "if len(seen) > 3: print('ESCAPED', seen)\n",
        outside=True,
    ),
    Escape(
        "read the variables of others",
        """
        import os
        for each in os.listdir("/proc"):
            if each.isdigit():
                try:
                    if "{secret}" in open(f"/proc/{each}/environ").read():
                        print("ESCAPED", each)
                except OSError:
                    pass
        """,
        outside=True,
    ),
    Escape(
        "read the words that others were started with",
        """
        import os
        for each in os.listdir("/proc"):
            if each.isdigit() and "{sleeper}" in open(f"/proc/{each}/cmdline").read():
                print("ESCAPED", each)
        """,
        outside=True,
    ),
    calling(
        "trace the keeper", "tried(libc.ptrace(16, 1, 0, 0)); tried(libc.ptrace(0x4206, 1, 0, 0))"
    ),
    calling("let itself be traced", "tried(libc.ptrace(0, 0, 0, 0))"),
    Escape("read the keeper's memory", "open('/proc/1/mem', 'rb').read(1)\nprint('ESCAPED')\n"),
    Escape("read the keeper's variables", "open('/proc/1/environ').read()\nprint('ESCAPED')\n"),
    Escape(
        "take the keeper's socket",
        "import os\nfor each in os.listdir('/proc/1/fd'):\n"
        "    print('ESCAPED', os.readlink(f'/proc/1/fd/{each}'))\n",
    ),
    calling(
        "take an open file of the keeper",
        """
        handle = os.pidfd_open(1)
        for number in range(8):
            tried(libc.syscall(438, handle, number, 0))
        """,
    ),
    calling(
        "read the keeper's memory by a call",
        """
        class Part(ctypes.Structure):
            _fields_ = [("base", ctypes.c_void_p), ("size", ctypes.c_size_t)]
        held = ctypes.create_string_buffer(8)
        ours, theirs = Part(ctypes.addressof(held), 8), Part(0x400000, 8)
        tried(libc.process_vm_readv(1, ctypes.byref(ours), 1, ctypes.byref(theirs), 1, 0))
        """,
    ),
    Escape(
        "lower the keeper's limits",
        "import resource\nresource.prlimit(1, resource.RLIMIT_NOFILE, (0, 0))\nprint('ESCAPED')\n",
    ),
    Escape(
        "let the keeper wait for everyone",
        "import os\nos.sched_setscheduler(1, os.SCHED_IDLE, os.sched_param(0))\nprint('ESCAPED')\n",
    ),
    Escape(
        "raise its own limits",
        """
        import resource
        for kind in (resource.RLIMIT_AS, resource.RLIMIT_NPROC, resource.RLIMIT_NOFILE):
            try:
                resource.setrlimit(kind, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
                print("ESCAPED", kind)
            except (ValueError, OSError):
                pass
        """,
    ),
    Escape(
        "outlive the run",
        """
        import os, time
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                os.execvp("sleep", ["sleep", "{long}"])
        """,
        ends=_END,
    ),
    Escape(
        "outlive the run with its output open, deaf to signals",
        """
        import os, signal, time
        for number in set(range(1, 65)) - {9, 19, 32, 33}:
            signal.signal(number, signal.SIG_IGN)
        if os.fork() == 0:
            while True:
                time.sleep(1)
                print("x", flush=True)
        """,
        ends=_END,
    ),
    Escape(
        "run for ever, deaf to signals",
        """
        import signal, time
        for number in set(range(1, 65)) - {9, 19, 32, 33}:
            signal.signal(number, signal.SIG_IGN)
        while True:
            time.sleep(1)
        """,
        ends=frozenset({"time"}),
        seconds=0.5,
    ),
    Escape(
        "stop itself, to be waited for",
        "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)\n",
        ends=frozenset({"time"}),
        seconds=0.5,
    ),
    Escape(
        "stop itself, with a child that goes on",
        "import os, signal, time\nif os.fork(): os.kill(os.getpid(), signal.SIGSTOP)\n"
        "time.sleep(60)\n",
        ends=frozenset({"time"}),
        seconds=0.5,
    ),
    Escape(
        "leave children that nobody waits for",
        "import os, time\nfor _ in range(20):\n    if os.fork() == 0: os._exit(0)\n"
        "time.sleep(0.2)\n",
        ends=_END,
    ),
    Escape(
        "leave grandchildren to the keeper",
        """
        import os
        for _ in range(60):
            if os.fork() == 0:
                if os.fork() == 0:
                    os._exit(0)
                os._exit(0)
            os.wait()
        """,
        ends=_END,
    ),
    Escape(
        "leave the session and the group",
        "import os, time\nif os.fork() == 0:\n    os.setsid(); time.sleep(60)\n",
        ends=_END,
    ),
    Escape(
        "become another program again and again",
        "import os, sys\nos.execv(sys.executable, [sys.executable, '-S', 'main.py'])\n",
        ends=frozenset({"time", "cpu"}),
        seconds=1.0,
    ),
    Escape(
        "be first in memory's line",
        "open('/proc/self/oom_score_adj', 'w', 1).write('-1000\\n')\nprint('ESCAPED')\n",
    ),
    Escape("be first in line for processors", "import os\nos.nice(-5)\nprint('ESCAPED')\n"),
    Escape(
        "hold a processor as of right",
        "import os\nos.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))\n"
        "print('ESCAPED')\n",
    ),
)
