"""Attempts to get out, each a program that prints OUT where it worked. Run only inside the sandbox, by test_breakouts.

Written against the finished sandbox: other kinds than the built-in self-test, which already covers files, environment,
descriptors, sockets, signals, fork and exec. `FORBIDDEN` must end in the outcome `policy`; `BREAKOUTS` must not print OUT.
"""

from __future__ import annotations

HEAD = """
import ctypes, errno, fcntl, mmap, os, resource, signal, socket, struct, sys, threading, time
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *a):
    libc.syscall.restype = ctypes.c_long
    return libc.syscall(ctypes.c_long(number), *[ctypes.c_long(x) if isinstance(x, int) else x for x in a])
def out(condition=True):
    if condition:
        os.write(1, b"OUT\\n")
A_FILE = os.__file__
"""

_CALLS = """
vfork:58:- execveat:322:281 memfd_secret:447:447 memfd_create:319:279 shmget:29:194 semget:64:190 mq_open:240:180 msgget:68:186
setns_pidfd_open:434:434 pidfd_send_signal:424:424 kcmp:312:272 process_madvise:440:440 rt_sigqueueinfo:129:138 tkill:200:130
setsid:112:157 setpgid:109:154 setpriority:141:140 sched_setscheduler:144:119 sched_setattr:314:274 sched_setaffinity:203:122
ioprio_set:251:30 personality:135:92 setuid:105:146 setresuid:117:147 setgroups:116:159 setfsuid:122:151 sethostname:170:161
syslog:103:116 acct:163:89 quotactl:179:60 swapon:167:224 inotify_init1:294:26 fanotify_init:300:262 signalfd4:289:74
timerfd_create:283:85 timer_create:222:107 splice:275:76 tee:276:77 vmsplice:278:75 sendfile:40:71 copy_file_range:326:285
chmod:90:- fchmod:91:52 fchmodat:268:53 chown:92:- fchownat:260:54 utimensat:280:88 setxattr:188:5 fsetxattr:190:7 link:86:-
linkat:265:37 mknod:133:- mknodat:259:33 flock:73:32 fallocate:285:47 sync:162:81 syncfs:306:267 statfs:137:43 ustat:136:-
name_to_handle_at:303:264 landlock_create_ruleset:444:444 seccomp:317:277 io_uring_enter:426:426 remap_file_pages:216:234
mlock:149:228 mlockall:151:230 mbind:237:235 set_mempolicy:238:237 move_pages:279:239 migrate_pages:256:238 membarrier:324:283
socket:41:198 bind:49:200 connect:42:203 listen:50:201 accept4:288:242 setsockopt:54:208 clock_settime:227:112 adjtimex:159:171
arch_prctl:158:- modify_ldt:154:- iopl:172:- ioperm:173:- uselib:134:- kexec_load_probe:500:500
"""
REFUSED = [tuple(entry.split(":")) for entry in _CALLS.split()]
"""(name, number on x86_64, number on aarch64) of calls that must fail with EPERM or ENOSYS whatever their arguments."""

FORBIDDEN = {
    "mount": "call(165, 0, 0, 0, 0, 0)",
    "unshare": "libc.unshare(0x10000000)",
    "setns": "libc.setns(0, 0)",
    "chroot": "libc.chroot(b'/')",
    "bpf": "call(321, 0, 0, 0)",
    "io_uring": "call(425, 1, bytes(120))",
    "userfaultfd": "call(323, 0)",
    "perf events": "call(298, bytes(128), 0, -1, -1, 0)",
    "keyring": "call(250, 0, -3, 0)",
    "read another process's memory": "call(310, os.getppid() or 1, 0, 0, 0, 0, 0)",
    "take another process's descriptor": "call(438, 0, 0, 0)",
    "capabilities": "libc.capset(struct.pack('II', 0x20080522, 0), bytes(24))",
    "a thread in a new user namespace": "libc.clone.restype = ctypes.c_long; call(56, 0x10000000 | 0x10900, 0, 0, 0, 0)",
    "32-bit system calls": """
code = mmap.mmap(-1, 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=7)
code.write(b'\\xb8\\x14\\x00\\x00\\x00\\xcd\\x80\\xc3')        # mov eax, getpid; int 0x80; ret
address = ctypes.addressof(ctypes.c_char.from_buffer(code))
ctypes.CFUNCTYPE(ctypes.c_int)(address)()
""",
}

BREAKOUTS = {
    # memory that no limit counts
    "page tables through untouched read-only maps": """
libc.mmap.restype = ctypes.c_void_p
for _ in range(64):
    p = libc.mmap(None, ctypes.c_size_t(1 << 34), 1, 0x4022, -1, ctypes.c_long(0))
    if p in (None, ctypes.c_void_p(-1).value): break
else:
    out()
""",
    "stack maps": "out(call(9, 0, 1 << 30, 3, 0x122, -1, 0) > 0)",
    "huge pages": "out(call(9, 0, 1 << 21, 3, 0x40022, -1, 0) > 0)",
    "shared maps by another flag": "out(call(9, 0, 1 << 20, 3, 0x23, -1, 0) > 0)",
    "bigger pipes": "r, w = os.pipe(); out(fcntl.fcntl(w, 1031, 1 << 20) > 0)",
    "descriptors in flight": """
held = []
for _ in range(2000):
    a, b = socket.socketpair()
    socket.send_fds(a, [b'x'], [b.fileno()])
    held.append((a, b))
    b.detach(); a.detach()
out()
""",
    "growing its own input": "os.ftruncate(0, 1 << 40); out()",
    "writing its own input": "os.pwrite(0, b'x' * 4096, 0); out()",
    "sharing its own input": "mmap.mmap(0, 1, flags=mmap.MAP_SHARED, prot=3); out()",
    "more memory by brk": """
libc.sbrk.restype = ctypes.c_void_p
out(libc.sbrk(ctypes.c_long(1 << 30)) != ctypes.c_void_p(-1).value)
""",
    "more memory by remap": """
libc.mmap.restype = libc.mremap.restype = ctypes.c_void_p
p = libc.mmap(None, ctypes.c_size_t(4096), 3, 0x22, -1, ctypes.c_long(0))
out(libc.mremap(ctypes.c_void_p(p), ctypes.c_size_t(4096), ctypes.c_size_t(1 << 31), 1) != ctypes.c_void_p(-1).value)
""",
    "more memory by changing protection": """
libc.mmap.restype = ctypes.c_void_p
p = libc.mmap(None, ctypes.c_size_t(1 << 31), 0, 0x4022, -1, ctypes.c_long(0))
out(libc.mprotect(ctypes.c_void_p(p), ctypes.c_size_t(1 << 31), 3) == 0)
""",
    # limits
    "an unlimited stack": """
resource.setrlimit(resource.RLIMIT_STACK, (-1, -1))
out(resource.getrlimit(resource.RLIMIT_STACK)[1] < 0)
""",
    "more open files": "resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096)); out()",
    "more niceness": "os.nice(-1); out()",
    # other processes
    "thread ids of others": "[out(call(234, p, p, 0) == 0) for p in range(1, 400) if p != os.getpid()]",
    "a process group": "os.killpg(0, signal.SIGCONT); out()",
    "signals by descriptor ownership": "fcntl.fcntl(1, fcntl.F_SETOWN, os.getppid() or 1); out()",
    "a raw fork": "out(call(56, 17, 0, 0, 0, 0) >= 0)",
    "a fork that shares memory": "out(call(56, 0x4111, 0, 0, 0, 0) >= 0)",
    "clone3": "out(call(435, bytes(88), 88) >= 0)",
    "waiting for others": "out(os.waitpid(-1, 0)[0] > 0)",
    # files
    "climbing up from /tmp": """
for p in ('../', '../../', '../../../', '/box/../'):
    try: open(p + 'etc/passwd').read(); out()
    except OSError: pass
""",
    "a link to outside": "os.symlink('/etc/passwd', 'l'); open('l').read(); out()",
    "a rename of the root's own": "os.rename('/tmp', '/x'); out()",
    "a file beside /tmp": "open('/box/x', 'w'); out()",
    "a device file": "os.mknod('d', 0o020666, os.makedev(1, 1)); out()",
    "a named pipe": "os.mkfifo('f'); out()",
    "a socket file": "socket.socketpair()[0].bind('s'); out()",
    "the stdlib's file modes": "os.chmod(A_FILE, 0o777); out()",
    "the stdlib's times": "os.utime(A_FILE); out()",
    "the stdlib's content": "open(A_FILE, 'r+').write('#'); out()",
    "truncating the stdlib": "os.truncate(A_FILE, 0); out()",
    "removing the stdlib": "os.unlink(A_FILE); out()",
    "a write lease on the stdlib": "fcntl.fcntl(os.open(A_FILE, os.O_RDONLY), 1024, 1); out()",
    "a lock on the stdlib": "fcntl.flock(open(A_FILE), fcntl.LOCK_EX); out()",
    "record locks on the stdlib": "fcntl.lockf(open(A_FILE), fcntl.LOCK_SH); out()",
    "directory notifications": "fcntl.fcntl(os.open('/tmp', os.O_RDONLY), fcntl.F_NOTIFY, 1); out()",
    "host devices": """
for p in ('/dev/kmsg', '/dev/mem', '/dev/vda', '/dev/tty', '/dev/fuse', '/dev/kvm', '/dev/nvidia0'):
    try: open(p, 'rb'); out()
    except OSError: pass
""",
    "/dev/shm": "open('/dev/shm/x', 'w'); out()",
    # sockets
    "a datagram pair that can send elsewhere": "socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM); out()",
    "a pair of another family": "socket.socketpair(socket.AF_INET); out()",
    "sending to a name over a stream": "a, b = socket.socketpair(); a.sendto(b'x', '\\0trainer'); out()",
    "the terminal's input": "fcntl.ioctl(0, 0x5412, b'x'); out()",
    # what the zygote left in memory
    "the zygote's objects": """
import gc
names = {type(o).__module__ + '.' + type(o).__name__ for o in gc.get_objects()}
out(any(n.startswith('tossup') for n in names if n.endswith('Setup')))
""",
    "frames below": """
frame = sys._getframe()
while frame:
    for v in frame.f_locals.values():
        if isinstance(v, socket.socket):
            try: os.fstat(v.fileno()); out()
            except (OSError, ValueError): pass
    frame = frame.f_back
""",
    "the zygote's control socket": """
for fd in range(3, 1024):
    try: os.write(fd, b'stop'); out()
    except OSError: pass
""",
}  # fmt: skip

ALWAYS_ENDS = {
    "every signal to itself": """
for n in range(1, 65):
    for send in (lambda: os.kill(os.getpid(), n), lambda: signal.raise_signal(n), lambda: call(200, os.getpid(), n)):
        try: send()
        except OSError: pass
""",
    "SIGKILL to itself": "os.kill(os.getpid(), 9)",
    "SIGSTOP to itself": "os.kill(os.getpid(), 19)",
    "its own CPU limit": "resource.setrlimit(resource.RLIMIT_CPU, (1, 1))\nwhile True: pass",
    "abort": "os.abort()",
    "a null pointer": "ctypes.string_at(0)",
    "deep recursion in C": "import json; sys.setrecursionlimit(10**6); json.loads('[' * 10**6)",
    "closing everything": "os.closerange(0, 1024)",
    "an exit handler that never ends": "import atexit\ndef f():\n    while True: pass\natexit.register(f)",
    "a thread that never ends": "def f():\n    while True: pass\nthreading.Thread(target=f).start()",
    "many small threads": """
threading.stack_size(32768)
for _ in range(3000): threading.Thread(target=time.sleep, args=(600,)).start()
""",
    "a full /tmp": "f = open('big', 'wb')\nwhile True: f.write(bytes(1 << 20)); f.flush()",
    "deep directories": "while True: os.mkdir('d'); os.chdir('d')",
    "many files": "n = 0\nwhile True: open(str(n), 'w').close(); n += 1",
    "errors without end": "while True: os.write(2, b'x' * 65536)",
    "output without end": "while True: os.write(1, b'x' * 65536)",
    "output without a reader to stop it": """
os.set_blocking(1, False)
while True:
    try: os.write(1, b'x')
    except BlockingIOError: pass
""",
    "a compiler bomb": "exec('x = ' + '(' * 90 + '1' + ')' * 90 + '\\n' * 10**6 + 'y = ' + '-' * 10**6 + '1')",
    "a number without end": "10 ** 10 ** 9",
    "memory without end": "x = []\nwhile True: x.append(bytearray(1 << 20))",
    "replacing the interpreter's own functions": """
threading._shutdown = os._exit = sys.stdout = sys.excepthook = None
1 / 0
""",
    "an exit status object": "class E(SystemExit): pass\ne = E(); e.code = lambda: 0\nraise e",
    "an exception that cannot be shown": "class E(Exception):\n    def __str__(self): os._exit(0)\nraise E",
}  # fmt: skip
"""Programs that must end in an outcome of their own: never `infra`, which a policy could use to dodge a penalty."""
