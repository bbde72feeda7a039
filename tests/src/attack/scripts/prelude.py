# What all attacks share. Each is a function with a docstring; it returns when it could do nothing, calls
# `success` when it got what it wanted, and `cannot` when something that it needs is missing. A refused system
# call (OSError) counts as blocked if it is one of `REFUSED`, or of those named by `@refused_with`, and as not run
# if it is one of `MISSING`. Any other error is a fault of the attack.
#
# Conditions, read by the suite (catalogue.rs):
#   @only("docker bubblewrap")    makes sense only in these backends
#   @limit(60)                    time limit in seconds
#   @ruins                        the sandbox is of no use afterwards
#   @recorded("web")              the gateway must have recorded a refused request ("web") or push ("push")
#   @weaker("landlock: why")      these backends, or kinds of sandbox, do not promise to block it
#   @check                        runs as a check of the project does, below a shell whose exit code is 3
#   @web                          needs the bait on port 80, which a user without rights cannot open
#   @off("--cap-add=SYS_ADMIN")   options of `docker run` with which it succeeds; `$TOKEN` is a secret
#   @without("bubblewrap; network namespace; !--unshare-net")
#                                 what lacks the control (`root` before it: started by root), the control, and options
#                                 of `bwrap` with which it succeeds. `!` takes an option of the suite's jail away,
#                                 `+folder` leaves the machine's root open, `+core` allows core files,
#                                 `+outlives` does not end what it leaves, `+own-user` asks for a user whom nobody
#                                 else is (controls/jail.rs), `+token` puts the forge's token into the sandbox
#                                 (controls/gateway.rs). A process without a jail needs no options
#   @undemonstrated("docker: why")  these kinds show no success without the control
#   @through("gateway")           the control is the gateway's, not the sandbox's
import base64, ctypes, errno, fcntl, glob, json, mmap, os, re, select, shutil, signal, socket, stat, struct
import subprocess, sys, tempfile, threading, time, zlib

def _condition(*_):
    return lambda function: function

only = limit = recorded = weaker = off = without = undemonstrated = through = _condition

def ruins(function):
    return function

web = check = ruins

def refused_with(*names):
    def remember(function):
        function.refused = names
        return function
    return remember

REFUSED = ["EPERM", "EACCES", "EROFS", "ENOENT", "ESRCH", "ECONNREFUSED", "ENETUNREACH", "EHOSTUNREACH",
           "ETIMEDOUT", "ECONNRESET", "ENETDOWN"]

def _end(kind, what):
    sys.stdout.write("\nATTACK %s %s\n" % (kind, " ".join(str(what).split())[:300]))
    sys.stdout.flush()
    os._exit(0)

def blocked(why):
    _end("blocked", why)

def success(what):
    _end("success", what)

def cannot(why):
    _end("cannot", why)

# What a kernel says that lacks something.
MISSING = ["EAFNOSUPPORT", "EPROTONOSUPPORT", "ESOCKTNOSUPPORT", "ENOSYS", "EOPNOTSUPP", "ENOPROTOOPT"]

def main(name):
    function = globals()[name]
    try:
        function()
    except (socket.timeout, TimeoutError):
        blocked("no answer")
    except MemoryError:
        blocked("no more memory")
    except OSError as error:
        name = errno.errorcode.get(error.errno, str(error.errno))
        if name in REFUSED or name in getattr(function, "refused", ()):
            blocked(name)
        if name in MISSING:
            cannot("this kernel has it not: " + name)
        _end("broken", error)
    except BaseException as error:
        _end("broken", "%s: %s" % (type(error).__name__, error))
    blocked("without effect")

_libc = ctypes.CDLL(None, use_errno=True)

def call(number, *arguments):
    """A system call (x86_64). Fails as an OSError."""
    words = [ctypes.c_long(it) if isinstance(it, int) else it for it in arguments]
    _libc.syscall.restype = ctypes.c_long
    result = _libc.syscall(ctypes.c_long(number), *words)
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result

def env(name):
    value = os.environ.get(name, "")
    if not value:
        cannot("there is no " + name)
    return value

def number(name):
    return int(env(name))

def tool(name):
    found = shutil.which(name)
    if not found:
        cannot("there is no " + name)
    return found

def read(path, size=4000):
    with open(path, "rb", buffering=0) as file:
        return file.read(size)

def show(data):
    """Prints what was found. The suite looks for its secrets in it."""
    sys.stdout.write(data.decode("latin-1") if isinstance(data, bytes) else str(data))
    sys.stdout.write("\n")

def each(attempts):
    """Makes several attempts; those that are refused do not keep the others from being made."""
    refused = None
    for attempt in attempts:
        try:
            attempt()
        except OSError as error:
            refused = error
    if refused:
        raise refused

def processes():
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]

def compiled(source, *options):
    """A program of C."""
    folder = tempfile.mkdtemp(dir=os.environ.get("TMPDIR", "/tmp"))
    with open(folder + "/a.c", "w") as file:
        file.write(source)
    done = subprocess.run([tool("gcc"), "-o", folder + "/a", folder + "/a.c", *options], capture_output=True, text=True)
    if done.returncode:
        cannot("gcc: " + done.stderr[-200:])
    return folder + "/a"

def connect(address, data=b"reached", timeout=3):
    """Opens a TCP connection and writes to it. The bait notices."""
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as stream:
        stream.settimeout(timeout)
        stream.connect(address)
        stream.sendall(data)
        time.sleep(0.05)
