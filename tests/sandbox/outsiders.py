"""More attempts against the finished sandbox, by somebody who did not write it. As in `breakouts`: OUT means that it worked.

By kind: truncation without writing, descriptors that lead elsewhere, /proc and /sys, devices, limits, process options, high
halves of arguments, shared things with names, memory advice; then ways to keep a machine busy or to wait for ever.
"""

from __future__ import annotations

FRAMES = """
def frames(name):
    frame = sys._getframe()
    while frame.f_code.co_name != name: frame = frame.f_back
    return frame.f_locals
"""
"""The zygote's frames lie below the program's: what it has prepared can be looked at, and must be of no use."""

PROBES = {
    "emptying a file by a read-only open": "os.open(A_FILE, os.O_RDONLY | os.O_TRUNC); out()",
    "emptying a file by an open for nothing": "os.open(A_FILE, 3 | os.O_TRUNC); out()",
    "emptying a file by its name": "os.truncate(__import__('json').__file__, 0); out()",
    "an unnamed file in a directory of the host": """
for p in ('/', '/usr/lib', '/var/tmp', '/dev/shm', '/home', os.path.dirname(A_FILE)):
    try: os.open(p, os.O_TMPFILE | os.O_RDWR); out()
    except OSError: pass
""",
    "a path descriptor of the root": """
fd = os.open('/', os.O_PATH)
os.read(os.open('etc/passwd', os.O_RDONLY, dir_fd=fd), 1); out()
""",
    "walking by fchdir": """
os.fchdir(os.open(os.path.dirname(A_FILE), os.O_PATH))
for up in range(1, 9):
    try: os.read(os.open('../' * up + 'etc/passwd', os.O_RDONLY), 1); out()
    except OSError: pass
""",
    "through a link and /proc": """
for target in ('/proc/self/root/etc/passwd', '/proc/1/root/etc/passwd', '/proc/self/cwd/../etc/passwd', '/dev/fd/0/../passwd'):
    try:
        os.symlink(target, 'l'); open('l').read(); out()
    except OSError: pass
""",
    "listing the host": "[out('passwd' in os.listdir(p)) for p in ('/etc', '/usr/../etc')]",
    "another process's links in /proc": """
for p in {os.getppid(), 1, 2, *range(max(2, os.getppid() - 20), os.getppid() + 1)} - {os.getpid(), 0}:
    for name in ('exe', 'cwd', 'root', 'fd/0', 'fd/1', 'ns/pid'):
        try: os.readlink(f'/proc/{p}/{name}'); out()
        except OSError: pass
""",
    "another process's files in /proc": """
for p in {os.getppid(), 1} - {os.getpid(), 0}:
    for name in ('environ', 'maps', 'mem', 'cmdline', 'status', 'stat', 'oom_score_adj', 'timers'):
        try: open(f'/proc/{p}/{name}', 'rb').read(1); out()
        except OSError: pass
""",
    "its own files in /proc": """
for name in ('mem', 'environ', 'maps', 'uid_map', 'oom_score_adj', 'coredump_filter', 'clear_refs', 'attr/current'):
    try: open(f'/proc/self/{name}', 'r+b'); out()
    except OSError: pass
""",
    "the kernel's switches": """
for p in ('/proc/sys/kernel/core_pattern', '/proc/sysrq-trigger', '/proc/sys/vm/drop_caches', '/sys/kernel/uevent_helper',
          '/sys/fs/cgroup/cgroup.procs', '/sys/fs/cgroup/release_agent', '/sys/kernel/debug', '/sys/fs/bpf/x'):
    for mode in ('rb', 'wb'):
        try: open(p, mode); out()
        except OSError: pass
""",
    "more devices": """
for p in ('/dev/ptmx', '/dev/pts/0', '/dev/net/tun', '/dev/loop-control', '/dev/vsock', '/dev/userfaultfd', '/dev/vhost-net',
          '/dev/console', '/dev/port', '/dev/hpet', '/dev/uinput', '/dev/mqueue/x', '/dev/full', '/dev/zero', '/dev/tty0'):
    for mode in (os.O_RDONLY, os.O_WRONLY | os.O_CREAT):
        try: os.open(p, mode); out()
        except OSError: pass
""",
    "devices that it may open, as something else": """
fd = os.open('/dev/null', os.O_RDWR)
for request in (0x5404, 0x5412, 0x540E, 0x4C82, 0x127C, 0x5423, 0x40045436):
    try: fcntl.ioctl(fd, request, bytes(64)); out()
    except OSError: pass
""",
    "core dumps": "resource.setrlimit(resource.RLIMIT_CORE, (-1, -1)); out()",
    "any limit": """
for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA, resource.RLIMIT_FSIZE, resource.RLIMIT_MEMLOCK, resource.RLIMIT_NICE,
             resource.RLIMIT_RTPRIO, resource.RLIMIT_MSGQUEUE, resource.RLIMIT_SIGPENDING):
    try:
        resource.setrlimit(kind, (-1, -1)); out()
    except (OSError, ValueError): pass
""",
    "process options": """
for option in (1, 4, 8, 10, 13, 17, 21, 22, 23, 24, 28, 29, 31, 33, 35, 36, 38, 47, 52, 53, 59, 62, 0x59616D61):
    out(call(157, option, 0, 0, 0, 0) >= 0)
""",
    "the high half of an argument": """
out(call(16, 0, 0x5412 | 1 << 32, b'x') >= 0)
out(call(72, 1, 1031 | 1 << 32, 1 << 20) >= 0)
out(call(62, os.getpid() | 1 << 32, 9) == 0)
out(call(157, 22 | 1 << 32, 0) >= 0)
out(call(302, (os.getppid() or 1) | 1 << 32, 7, 0, bytes(16)) >= 0)
""",
    "an x32 call": "out(call(0x40000000 | 59, 0, 0, 0) == 0 or call(0x40000000 | 41, 1, 1, 0) >= 0)",
    "a whiteout": "open('a', 'w').close(); out(call(316, -100, b'a', -100, b'b', 4) == 0)",
    "shared memory by name": "libc.shm_open.restype = ctypes.c_int; out(libc.shm_open(b'/x', 0o102, 0o600) >= 0)",
    "a semaphore by name": """
libc.sem_open.restype = ctypes.c_void_p
out(libc.sem_open(b'/x', 0o100, 0o600, 1))
""",
    "a lock of multiprocessing": "import multiprocessing; multiprocessing.Lock(); out()",
    "a terminal": "os.openpty(); out()",
    "a spawned program": "os.posix_spawn('/bin/true', ['true'], {}); out()",
    "a shell": "out(libc.system(b'true') == 0)",
    "credentials of another": """
a, b = socket.socketpair()
a.sendmsg([b'x'], [(socket.SOL_SOCKET, 2, struct.pack('iii', 1, 0, 0))]); out()
""",
    "a seqpacket pair": "socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET); out()",
    "a connection of half a pair": "socket.socketpair()[0].connect('\\0trainer'); out()",
    "poisoned memory": """
page = mmap.mmap(-1, 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
address = ctypes.addressof(ctypes.c_char.from_buffer(page))
out(call(28, address, 4096, 100) == 0 or call(28, address, 4096, 101) == 0)
""",
    "a thread outside the thread group": "out(call(56, 0x100 | 0x800, 0, 0, 0, 0) >= 0)",
    "dying as another's parent": "out(call(157, 1, 0, 0, 0, 0) >= 0)",
    "the group's signals": "[out(call(62, p, 0) == 0) for p in (0, -1, -os.getpgrp() or -1)]",
    "a word to the host in the zygote's name": FRAMES + """
zygote = frames('serve')['self']
for send in (zygote._control.send, lambda data: os.write(zygote._control.fileno(), data)):
    try: send(struct.pack('=?iBddq', True, 0, 0, 0.0, 0.0, 0)); out()
    except OSError: pass
""",
    "the zygote's loop, from inside": FRAMES + """
zygote = frames('serve')['self']
try: zygote._run(frames('_run')['request'], []); out()
except (OSError, IndexError): pass
zygote.serve()
""",
    "the jail's own calls once more": FRAMES + """
jail = frames('become_program')['jail']
jail.filter[:] = bytes(len(jail.filter))
for again in (jail.filter_calls, jail.restrict_paths):
    try: again and (again(), out())
    except OSError: pass
""",
    "the page that says that the jail is closed": FRAMES + """
import gc
gc.unfreeze()
out(not frames('become_program')['stage'].closed)
out(any(isinstance(o, mmap.mmap) and not o.closed for o in gc.get_objects()))
""",
    "a descriptor that is left": """
for fd in range(3, 4096):
    try: os.fstat(fd); out()
    except OSError: pass
""",
    "any x32 call": """
for n in range(600): out(call(0x40000000 | n, -1, -1, -1, -1, -1, -1) != -1 or ctypes.get_errno() != 38)
""",
    "numbers that are none": """
for n in (-1, -2, -2**31, 2**31, 2**32 - 1, 451, 463, 500, 547, 2**30 - 1):
    out(call(n, -1, -1, -1, -1, -1, -1) != -1)
""",
}  # fmt: skip

BUSY = {
    "stops itself by the terminal's signals": "for n in (20, 21, 22): os.kill(os.getpid(), n)\nwhile True: time.sleep(1)",
    "a storm of timers": """
signal.signal(signal.SIGALRM, lambda *a: None); signal.setitimer(signal.ITIMER_REAL, 1e-6, 1e-6)
while True: pass
""",
    "ignores all signals": """
for n in range(1, 65):
    try: signal.signal(n, signal.SIG_IGN)
    except (OSError, ValueError): pass
while True: pass
""",
    "works between sleeps": """
while True:
    t = time.perf_counter()
    while time.perf_counter() - t < 0.001: pass
    time.sleep(1e-5)
""",
    "works in threads that come and go": """
while True: t = threading.Thread(target=lambda: sum(range(10**5))); t.start(); t.join()
""",
    "waits for its own pipe": "r, w = os.pipe(); os.read(r, 1)",
    "fills its own pipe": "r, w = os.pipe()\nwhile True: os.write(w, bytes(65536))",
    "waits for an event": "os.eventfd_read(os.eventfd(0))",
    "a lock taken twice": "l = threading.Lock(); l.acquire(); l.acquire()",
    "nested epolls": """
import select
e = [select.epoll() for _ in range(20)]
for a, b in zip(e, e[1:]): a.register(b)
e[0].poll()
""",
    "randomness without end": "while True: os.getrandom(1 << 20)",
    "feeding the devices": "fd = os.open('/dev/null', os.O_RDWR)\nwhile True: os.write(fd, bytes(1 << 20))",
    "a sparse file, mapped": """
f = open('big', 'w+b'); f.truncate(1 << 23)
m = mmap.mmap(f.fileno(), 0)
while True: m[:] = bytes(len(m))
""",
    "a regular expression": "import re; re.match('(a*)*$', 'a' * 60 + 'b')",
    "a number as text": "sys.set_int_max_str_digits(0); str(7 ** 10**7)",
    "colliding keys": "{i * (2**61 - 1): 0 for i in range(10**6)}",
    "a million generators": "g = iter(())\nfor _ in range(10**6): g = (x for x in g)\nnext(g)",
    "a chain of exceptions": "e = None\nfor _ in range(10**6):\n    n = ValueError(); n.__context__ = e; e = n\nraise e",
    "an error of a hundred megabytes": "raise ValueError('x' * 10**8)",
    "a text of text": "class R:\n    def __repr__(self): return repr([self, self])\nrepr(R())",
    "a bomb of zeros": "import zlib\nd = zlib.compress(bytes(10**8))\nwhile True: x = [zlib.decompress(d) for _ in range(10)]",
    "a format as wide as the world": "'%*d' % (10**10, 1)",
    "all products": "import itertools; list(itertools.product(range(100), repeat=8))",
    "a trace of everything": "sys.settrace(lambda *a: [0 for _ in range(1000)])\ndef f(): return f()\nf()",
    "a class of all classes": "c = object\nfor i in range(10**5): c = type('c', (c,), {})",
    "exec of exec": "s = 'exec(s)'\nexec(s)",
    "a finalizer that makes another": "class D:\n    def __del__(self): D()\nD()\nwhile True: pass",
    "a thousand files of one name": "while True:\n    open('f', 'w').close(); os.rename('f', 'g'); os.unlink('g')",
    "a raw exit of one thread": "threading.Thread(target=time.sleep, args=(600,)).start(); call(60, 0)",
    "no standard streams": "sys.stdout = sys.stderr = sys.__stdout__ = sys.__stderr__ = None; raise ValueError",
    "an import of itself": "sys.path.insert(0, '/tmp'); import main",
}  # fmt: skip
"""Programs that must end as their own doing, and leave a sandbox that works."""

COMPILED = {
    "many parentheses": "x = " + "(" * 5000 + ")" * 5000,
    "many signs": "x = " + "-" * 200_000 + "1",
    "many attributes": "x = a" + ".b" * 100_000,
    "many functions in each other": "f = " + "lambda: " * 5000 + "1",
    "a long sum": "x = " + " + ".join(["1"] * 300_000),
    "a large constant": "x = 'a' * 10**9",
    "a larger constant": "x = 2 ** 10**8 ** 10**8",
    "constants of constants": "x = ((((((0,) * 20) * 20) * 20) * 20) * 20) * 20",
    "a large set": f"1 in {{{', '.join(map(str, range(200_000)))}}}",
    "a storm of warnings": "x = '\\d' is 1\n" * 5000,
    "fields in fields": f"f'{'{' * 300}1{'}' * 300}'",
    "nothing at all": "print(1)\0",
    "half a character": "print('\udc80')",
    "a codec of another kind": "# coding: zlib_codec\nprint(1)",
    "a codec that is none": "# coding: ../../x\nprint(1)",
    "a codec with state": "# coding: utf-7\nprint(1)\n+ACI-",
}
"""Programs that are too much for the compiler, or nearly. None may harm the zygote, or the next run of the same program."""
