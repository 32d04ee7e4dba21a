"""Files: to read what is the user's, and to change what lasts."""

from benchmarks.reliability.escapes.case import Escape, calling, reading


def _writing(name: str, path: str) -> Escape:
    source = f"import os, sys\nopen({path}, 'w').write('x')\nprint('ESCAPED', {path})\n"
    return Escape(name, source)


FILES = (
    reading("read a file of the user", "'{canary}'", outside=True),
    reading("read it by dots", "'../../../../../../../..{canary}'", outside=True),
    reading("read it by the root of process 1", "'/proc/1/root{canary}'"),
    reading("read it by the root of itself", "'/proc/self/root{canary}'", outside=True),
    reading("read the names of users", "'/etc/passwd'", outside=True),
    reading("read passwords", "'/etc/shadow'"),
    reading("read mounts of process 1's folder", "'/proc/1/cwd/etc/hostname'"),
    Escape(
        "read it by a link",
        "import os\nos.symlink('{canary}', 'link')\nprint('ESCAPED', open('link').read())\n",
    ),
    Escape(
        "read it by a hard link",
        "import os\nos.link('{canary}', 'hard')\nprint('ESCAPED', open('hard').read())\n",
    ),
    Escape(
        "change it by a link",
        "import os\nos.symlink('{canary}', 'link')\nopen('link', 'w').write('ESCAPED')\n"
        "print('ESCAPED', open('{canary}').read())\n",
    ),
    Escape(
        "link to it, and leave the link to whoever cleans up",
        "import os\nfor i in range(50): os.symlink('{folder}', f'/tmp/link{i}')\n"
        "os.mkdir('/tmp/a')\nos.symlink('..', '/tmp/a/up')\n",
    ),
    Escape(
        "list the project",
        "import os\nfound = os.listdir('{project}')\n"
        "if 'pyproject.toml' in found: print('ESCAPED', found)\n",
        outside=True,
    ),
    Escape(
        "list folders of temporary files",
        # A clone may itself lie there: the way to its interpreter is seen, and nothing beside it.
        """
        import os, sys
        mine = ["/tmp/work/"]
        mine += [f"{each}/" for each in (sys.prefix, sys.base_prefix, sys.exec_prefix)]

        def look(above):
            for name in os.listdir(above):
                place = f"{above}/{name}/"
                if any(each.startswith(place) and each != place for each in mine):
                    look(place[:-1])
                elif place not in mine:
                    print("ESCAPED", place)

        look("/tmp")
        """,
        outside=True,
    ),
    Escape(
        "find the file of the user in the whole system",
        """
        import os
        for place, folders, files in os.walk("/"):
            folders[:] = [each for each in folders if each not in ("proc", "usr", "site-packages")]
            if "{canary}".rpartition("/")[2] in files:
                print("ESCAPED", place)
        """,
        seconds=10.0,
    ),
    Escape(
        "open what was left open",
        """
        import os
        for number in range(3, 1024):
            try:
                found = os.readlink(f"/proc/self/fd/{number}")
            except OSError:
                continue
            if not found.startswith("/proc/"):
                print("ESCAPED", number, found)
        """,
    ),
    Escape(
        "read files of other processes",
        """
        import os
        for each in os.listdir("/proc"):
            if each.isdigit():
                for name in ("{canary}",):
                    try:
                        print("ESCAPED", open(f"/proc/{each}/root{name}").read())
                    except OSError:
                        pass
        """,
        outside=True,
    ),
    _writing("write to the system", "'/usr/bin/escaped'"),
    _writing("write over a program", "'/usr/bin/env'"),
    _writing("write to the library of Python", "os.path.dirname(os.__file__) + '/escaped.py'"),
    _writing("write over a module of Python", "os.__file__"),
    _writing(
        "write to the packages of Python",
        "next(p for p in sys.path if 'site-packages' in p) + '/escaped.pth'",
    ),
    _writing("write to the root", "'/escaped'"),
    _writing("write to devices", "'/dev/escaped'"),
    _writing("write over the keeper", "'/.keeper.py'"),
    Escape(
        "let everyone write to the library of Python",
        "import os\nos.chmod(os.__file__, 0o777)\nprint('ESCAPED')\n",
    ),
    Escape(
        "take a program of the system away",
        "import os\nos.unlink('/usr/bin/env')\nprint('ESCAPED')\n",
    ),
    Escape(
        "put another folder in the place of one",
        "import os\nos.rename('/tmp', '/temporary')\nprint('ESCAPED')\n",
    ),
    Escape("make a folder at the root", "import os\nos.mkdir('/escaped')\nprint('ESCAPED')\n"),
    Escape(
        "make a disk's device",
        "import os, stat\nos.mknod('disk', 0o666 | stat.S_IFBLK, os.makedev(254, 0))\n"
        "print('ESCAPED')\n",
    ),
    Escape(
        "find devices",
        """
        import os
        usual = {"core", "fd", "full", "null", "ptmx", "pts", "random", "shm", "stderr", "stdin"}
        usual |= {"stdout", "tty", "urandom", "zero", "console"}
        if more := set(os.listdir("/dev")) - usual:
            print("ESCAPED", more)
        """,
        outside=True,
    ),
    Escape(
        "find the settings of the machine in /sys",
        "import os\nif os.path.exists('/sys'): print('ESCAPED', os.listdir('/sys'))\n",
        outside=True,
    ),
    Escape(
        "give a program the rights of root",
        "import os, shutil\nshutil.copy('/bin/sh', 'sh')\nos.chmod('sh', 0o4755)\n"
        "if os.popen('./sh -c \"id -u\"').read().strip() == '0': print('ESCAPED')\n",
    ),
    calling(
        "give a file capabilities",
        """
        open("file", "w").close()
        value = bytes.fromhex("0100000200ffffff00000000ffffff0000000000")
        tried(libc.setxattr(b"file", b"security.capability", value, 20, 0))
        """,
    ),
)
