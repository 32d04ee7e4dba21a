"""Resources: to take more of the machine than was given."""

from benchmarks.reliability.escapes.case import Escape, calling

_PROCESSES = frozenset({"processes"})
# A busy machine stops some by their time first.
_MEMORY = frozenset({"memory", "exit", "signal", "time", "cpu"})
_OUTPUT = frozenset({"output"})
_TIME = frozenset({"time", "cpu"})

RESOURCES = (
    Escape("fork bomb", "import os\nwhile True:\n    os.fork()\n", ends=_PROCESSES | {"exit"}),
    Escape(
        "fork bomb that asks again",
        "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass\n",
        ends=_PROCESSES,
    ),
    Escape("fork bomb of the shell", "b() { b | b & }; b; wait\n", "shell"),
    Escape(
        "threads without end",
        "import threading, time\nwhile True:\n"
        "    threading.Thread(target=time.sleep, args=(60,)).start()\n",
        ends=_PROCESSES | {"exit", "time"},
    ),
    Escape(
        "programs without end",
        "import subprocess\nwhile True: subprocess.Popen(['sleep', '60'])\n",
        ends=_PROCESSES,
    ),
    Escape("memory: a list", "x = []\nwhile True: x.append(bytes(1 << 20))\n", ends=_MEMORY),
    Escape("memory: one string", "x = 'a' * (1 << 40)\nprint('ESCAPED')\n", ends=_MEMORY),
    Escape(
        "memory: of all processes together",
        """
        import os, time
        for _ in range(4):
            os.fork()
        held = os.urandom(1 << 20) * 100
        time.sleep(60)
        """,
        ends=frozenset({"memory"}),
    ),
    Escape(
        "memory: shared without a file",
        """
        import mmap, os, time
        held = [mmap.mmap(-1, 100 << 20) for _ in range(4)]
        if os.fork() == 0:
            held += [mmap.mmap(-1, 100 << 20)]
        for each in held:
            for at in range(0, len(each), 4096):
                each[at] = 1
        """,
        ends=_MEMORY,
    ),
    Escape(
        "memory: handed over and let go",
        """
        import mmap, os, time
        for _ in range(20):
            held = mmap.mmap(-1, 90 << 20)
            for at in range(0, len(held), 4096):
                held[at] = 1
            if os.fork():
                time.sleep(60)
        """,
        ends=frozenset({"memory"}),
    ),
    calling("memory: a file without a name", "tried(libc.memfd_create(b'x', 0))"),
    calling("memory: a secret one", "tried(libc.syscall(447, 0))"),
    calling("memory: segments of System V", "tried(libc.shmget(0, 1 << 20, 0o1600))"),
    calling("memory: messages of System V", "tried(libc.msgget(0, 0o1600))"),
    calling(
        "memory: messages of POSIX",
        "librt = ctypes.CDLL('librt.so.1')\ntried(librt.mq_open(b'/x', 0o102, 0o600, None))",
    ),
    calling("memory: locked", "tried(libc.mlockall(3) if libc.mlockall(3) == 0 and 0 else -1)"),
    Escape(
        "memory: in /dev/shm",
        "for i in range(99):\n    open(f'/dev/shm/{i}', 'wb').write(bytes(30 << 20))\n"
        "print('ESCAPED')\n",
    ),
    Escape(
        "memory: in pipes",
        """
        import os, time
        held = []
        try:
            while True:
                held.append(os.pipe())
                os.set_blocking(held[-1][1], False)
                os.write(held[-1][1], bytes(1 << 20))
        except OSError:
            pass
        if len(held) > 64: print("ESCAPED", len(held))
        """,
    ),
    Escape(
        "memory: in sockets",
        """
        import socket
        held = []
        try:
            while True:
                held.append(socket.socketpair())
                held[-1][0].setblocking(False)
                try:
                    while True: held[-1][0].send(bytes(1 << 16))
                except BlockingIOError:
                    pass
        except OSError:
            pass
        if len(held) > 64: print("ESCAPED", len(held))
        """,
    ),
    Escape("memory: recursion", "import sys\nsys.setrecursionlimit(10**9)\nf = lambda: f()\nf()\n"),
    Escape(
        "memory: a zip bomb",
        "import zlib\nsmall = zlib.compress(bytes(100 << 20), 9)\nheld = [zlib.decompress(small)"
        " for _ in range(50)]\nprint('ESCAPED')\n",
        ends=_MEMORY,
    ),
    Escape(
        "memory: a billion laughs",
        """
        import xml.dom.minidom as dom
        names = [f"a{i}" for i in range(12)]
        rules = "".join(f'<!ENTITY {b} "{("&" + a + ";") * 10}">' for a, b in zip(names, names[1:]))
        dom.parseString(f'<!DOCTYPE x [<!ENTITY a0 "ha">{rules}]><x>&{names[-1]};</x>')
        print("ESCAPED")
        """,
    ),
    Escape(
        "disk: a long file", "with open('x', 'wb') as f:\n    while True: f.write(bytes(1 << 20))\n"
    ),
    Escape(
        "disk: many long files",
        "for i in range(99): open(str(i), 'wb').write(bytes(30 << 20))\nprint('ESCAPED')\n",
    ),
    Escape("disk: a file with a hole", "open('x', 'wb').truncate(1 << 40)\nprint('ESCAPED')\n"),
    Escape(
        "disk: empty files",
        "for i in range(10**6): open(str(i), 'w').close()\nprint('ESCAPED')\n",
        ends=frozenset({"files"}),
    ),
    Escape(
        "disk: folders in folders",
        "import os\nfor i in range(10**6): os.mkdir('d'); os.chdir('d')\nprint('ESCAPED')\n",
        ends=frozenset({"files"}),
    ),
    Escape(
        "disk: a zip bomb",
        """
        import zipfile
        with zipfile.ZipFile("bomb", "w", zipfile.ZIP_DEFLATED) as made:
            for i in range(20): made.writestr(str(i), bytes(20 << 20))
        zipfile.ZipFile("bomb").extractall("out")
        print("ESCAPED")
        """,
    ),
    Escape(
        "open files without end",
        "held = []\nwhile len(held) < 5000: held.append(open('/dev/null'))\nprint('ESCAPED')\n",
    ),
    Escape("output without end", "while True: print('x' * 1000)\n", ends=_OUTPUT),
    Escape(
        "errors without end",
        "import sys\nwhile True: print('x' * 1000, file=sys.stderr)\n",
        ends=_OUTPUT,
    ),
    Escape(
        "output without end by a child",
        "import os, time\nif os.fork() == 0:\n    while True: os.write(1, b'x' * 1000)\n"
        "time.sleep(60)\n",
        ends=_OUTPUT,
    ),
    Escape("processor without end", "while True: pass\n", ends=_TIME, seconds=0.5),
    Escape(
        "processors without end",
        "import os\nfor _ in range(4): os.fork()\nwhile True: pass\n",
        ends=_TIME,
        seconds=0.5,
    ),
    Escape("a number without end", "print(10 ** 10 ** 9)\n", ends=_TIME | _MEMORY, seconds=0.5),
    Escape(
        "a pattern without end",
        "import re\nre.match(r'(a+)+$', 'a' * 50 + 'b')\n",
        ends=_TIME,
        seconds=0.5,
    ),
    Escape("sleep without end", "import time\ntime.sleep(10**6)\n", ends=_TIME, seconds=0.5),
    Escape(
        "signals in a queue",
        """
        import ctypes, os, signal
        signal.pthread_sigmask(signal.SIG_BLOCK, {40})
        libc = ctypes.CDLL(None)
        sent = 0
        while sent < 5000 and libc.sigqueue(os.getpid(), 40, None) == 0: sent += 1
        if sent > 300: print("ESCAPED", sent)
        """,
    ),
    Escape(
        "watches of files without end",
        """
        import ctypes, os
        libc = ctypes.CDLL(None)
        handles = [libc.inotify_init() for _ in range(500)]
        if sum(each >= 0 for each in handles) > 150: print("ESCAPED", len(handles))
        """,
    ),
)
