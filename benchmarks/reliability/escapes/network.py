"""The network, and other ways to talk to someone."""

from benchmarks.reliability.escapes.case import Escape, calling

NETWORK = (
    Escape(
        "connect to a server of the machine",
        "import socket\nsocket.create_connection(('127.0.0.1', {tcp}), 1)\nprint('ESCAPED')\n",
        outside=True,
    ),
    Escape(
        "connect to it by IPv6",
        "import socket\nsocket.create_connection(('::1', {tcp}), 1)\nprint('ESCAPED')\n",
    ),
    Escape(
        "send it a packet",
        "import socket\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
        "s.sendto(b'ESCAPED', ('127.0.0.1', {udp}))\n",
    ),
    Escape(
        "connect to the outside",
        "import socket\nsocket.create_connection(('1.1.1.1', 53), 1)\nprint('ESCAPED')\n",
    ),
    Escape(
        "ask for an address",
        "import socket\nprint('ESCAPED', socket.gethostbyname('example.org'))\n",
    ),
    Escape(
        "find a way out",
        "import socket\nfound = socket.if_nameindex()\n"
        "if len(found) > 1: print('ESCAPED', found)\n",
        outside=True,
    ),
    Escape(
        "connect to a server without a file",
        "import socket\ns = socket.socket(socket.AF_UNIX)\ns.connect('\\x00{abstract}')\n"
        "print('ESCAPED')\n",
        outside=True,
    ),
    Escape(
        "connect to a server by its file",
        "import socket\ns = socket.socket(socket.AF_UNIX)\ns.connect('{unix}')\nprint('ESCAPED')\n",
        outside=True,
    ),
    Escape(
        "reach the host of a virtual machine",
        "import socket\ns = socket.socket(socket.AF_VSOCK)\nprint('ESCAPED')\n",
    ),
    Escape(
        "send packets of its own making",
        "import socket\nfor family, kind in ((2, 3), (17, 3), (16, 3)):\n"
        "    try: socket.socket(family, kind); print('ESCAPED', family)\n"
        "    except OSError: pass\n",
    ),
    Escape(
        "ask the kernel's cipher",
        "import socket\nsocket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET)\nprint('ESCAPED')\n",
    ),
    Escape(
        "switch its network on",
        """
        import fcntl, socket, struct
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        fcntl.ioctl(s, 0x8914, struct.pack("16sh22x", b"lo", 1))
        print("ESCAPED")
        """,
    ),
    Escape(
        "type into the terminal",
        """
        import fcntl
        for place in (0, 1, 2):
            try:
                fcntl.ioctl(place, 0x5412, b"x")
                print("ESCAPED", place)
            except OSError:
                pass
        """,
    ),
    Escape("open the terminal", "open('/dev/tty', 'w').write('x')\nprint('ESCAPED')\n"),
    calling("take a terminal over", "tried(libc.ioctl(0, 0x540E, 1))"),
    Escape(
        "know the name of the machine",
        "import socket\nif socket.gethostname() == '{host}': print('ESCAPED')\n",
        outside=True,
    ),
    Escape(
        "read secrets of the environment",
        "import os\nif '{secret}' in str(os.environ): print('ESCAPED')\n",
        outside=True,
    ),
)
