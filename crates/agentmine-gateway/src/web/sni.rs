//! The server name in a TLS ClientHello (RFC 8446 §4.1.2, RFC 6066 §3), before any of it is passed
//! on. Of an encrypted ClientHello (RFC 9849) only the outer name is visible; the same rule applies to it.

use super::policy::HiddenNames;

/// What the first bytes of a connection contain.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Hello {
    /// More bytes are needed.
    Incomplete,
    /// The one server name, in lower case.
    Name(String),
    /// Not a ClientHello with exactly one server name; the reason.
    Refused(&'static str),
}

/// Size limit of a ClientHello, in bytes.
/// They are read again as each piece arrives, so this also bounds the work.
pub(super) const MAX_HELLO: usize = 16 * 1024;

/// The extension `encrypted_client_hello`.
const ENCRYPTED: u16 = 0xfe0d;

const NOT_TLS: Hello = Hello::Refused("the first bytes are not TLS");

/// Reads the server name from the first bytes of a connection.
pub(super) fn server_name(bytes: &[u8], hidden: HiddenNames) -> Hello {
    match handshake(bytes) {
        Err(other) => other,
        Ok(body) => match extensions(&body).and_then(|it| name(it, hidden)) {
            Some(hello) => hello,
            None => Hello::Refused("the TLS ClientHello is malformed"),
        },
    }
}

/// The body of the ClientHello, joined from its records.
fn handshake(bytes: &[u8]) -> Result<Vec<u8>, Hello> {
    let mut rest = bytes;
    let mut message = Vec::new();
    loop {
        if let [kind, a, b, c, ..] = message.as_slice() {
            if *kind != 1 {
                return Err(NOT_TLS);
            }
            let length = usize::from(*a) << 16 | usize::from(*b) << 8 | usize::from(*c);
            if length > MAX_HELLO {
                return Err(Hello::Refused("the TLS ClientHello is too long"));
            }
            if message.len() >= 4 + length {
                return Ok(message[4..4 + length].to_vec());
            }
        }
        // The first bytes already show whether this can be TLS.
        for (byte, wanted) in rest.iter().zip([22, 3]) {
            if *byte != wanted {
                return Err(NOT_TLS);
            }
        }
        let [_, _, _, high, low, after @ ..] = rest else {
            return Err(Hello::Incomplete);
        };
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        if length == 0 || length > (1 << 14) {
            return Err(NOT_TLS);
        }
        message.extend_from_slice(&after[..length.min(after.len())]);
        rest = after.get(length..).unwrap_or_default();
    }
}

/// Skips to the extensions of a ClientHello.
fn extensions(body: &[u8]) -> Option<Input<'_>> {
    let mut input = Input(body);
    input.take(2 + 32)?;
    let session = input.u8()?;
    input.take(session.into())?;
    let suites = input.u16()?;
    input.take(suites.into())?;
    let compression = input.u8()?;
    input.take(compression.into())?;
    if input.0.is_empty() {
        return Some(input);
    }
    let length = input.u16()?;
    let extensions = input.take(length.into())?;
    input.0.is_empty().then_some(Input(extensions))
}

/// The one name in the extensions; `None` when they are malformed.
fn name(mut extensions: Input<'_>, hidden: HiddenNames) -> Option<Hello> {
    let mut found = None;
    while !extensions.0.is_empty() {
        let kind = extensions.u16()?;
        let length = extensions.u16()?;
        let content = extensions.take(length.into())?;
        if kind == ENCRYPTED && hidden == HiddenNames::Refused {
            return Some(Hello::Refused(
                "the TLS ClientHello is encrypted (ECH), and may name another host",
            ));
        }
        if kind != 0 {
            continue;
        }
        let mut list = Input(content);
        let length = list.u16()?;
        if usize::from(length) != list.0.len() || list.u8()? != 0 {
            return None;
        }
        let length = list.u16()?;
        let text = std::str::from_utf8(list.take(length.into())?).ok()?;
        if !list.0.is_empty() || found.is_some() {
            return Some(Hello::Refused(
                "the TLS ClientHello names more than one host",
            ));
        }
        found = Some(text.to_ascii_lowercase());
    }
    Some(match found {
        Some(name) => Hello::Name(name),
        None => Hello::Refused("the TLS ClientHello names no host (no SNI)"),
    })
}

struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn u8(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    fn u16(&mut self) -> Option<u16> {
        self.take(2)
            .map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// As in whitelist mode.
    fn server_name(bytes: &[u8]) -> Hello {
        super::server_name(bytes, HiddenNames::Refused)
    }

    pub(in crate::web) fn sized(bytes: &[u8]) -> Vec<u8> {
        let mut out = u16::try_from(bytes.len()).unwrap().to_be_bytes().to_vec();
        out.extend_from_slice(bytes);
        out
    }

    pub(in crate::web) fn entry(name: &str) -> Vec<u8> {
        [&[0][..], &sized(name.as_bytes())].concat()
    }

    pub(in crate::web) fn extension(kind: u16, content: &[u8]) -> Vec<u8> {
        [&kind.to_be_bytes()[..], &sized(content)].concat()
    }

    /// A ClientHello with these extensions, in records of at most `record` bytes.
    pub(in crate::web) fn hello(extensions: &[u8], record: usize) -> Vec<u8> {
        let mut body = vec![3, 3];
        body.extend([7; 32]);
        body.push(0);
        body.extend(sized(&[0x13, 1]));
        body.extend([1, 0]);
        body.extend(sized(extensions));
        let mut message = vec![1, 0];
        message.extend(u16::try_from(body.len()).unwrap().to_be_bytes());
        message.extend(body);
        let mut out = Vec::new();
        for chunk in message.chunks(record) {
            out.extend([22, 3, 1]);
            out.extend(sized(chunk));
        }
        out
    }

    /// A ClientHello that names `name`.
    pub(in crate::web) fn hello_for(name: &str) -> Vec<u8> {
        let padding = extension(21, &[0; 40]);
        let list = extension(0, &sized(&entry(name)));
        hello(&[padding, list].concat(), 16_000)
    }

    #[test]
    fn the_name_is_found_and_lower_cased() {
        assert_eq!(
            server_name(&hello_for("Example.ORG")),
            Hello::Name("example.org".into())
        );
    }

    #[test]
    fn a_client_hello_in_pieces_is_joined() {
        let list = extension(0, &sized(&entry("example.org")));
        let bytes = hello(&list, 7);
        assert_eq!(server_name(&bytes), Hello::Name("example.org".into()));
        for cut in 0..bytes.len() {
            assert_eq!(server_name(&bytes[..cut]), Hello::Incomplete, "{cut}");
        }
    }

    #[test]
    fn anything_but_one_name_is_refused() {
        let twice = [
            extension(0, &sized(&entry("a.b"))),
            extension(0, &sized(&entry("c.d"))),
        ];
        let two = extension(0, &sized(&[entry("a.b"), entry("c.d")].concat()));
        for bytes in [
            hello(&[], 100),
            hello(&extension(10, &[0, 0]), 100),
            hello(&twice.concat(), 100),
            hello(&two, 100),
            hello(&extension(0, &[0, 9, 0]), 100),
            b"GET / HTTP/1.1\r\n\r\n".to_vec(),
            vec![22, 3, 1, 0, 0],
            vec![22, 3, 1, 0, 4, 2, 0, 0, 0],
        ] {
            assert!(
                matches!(server_name(&bytes), Hello::Refused(_)),
                "{bytes:?}"
            );
        }
    }

    proptest! {
        #[test]
        fn any_bytes_end_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = server_name(&bytes);
            let _ = server_name(&hello(&bytes, 50));
        }

        #[test]
        fn a_damaged_client_hello_ends_without_a_panic(at: prop::sample::Index, byte: u8) {
            let mut bytes = hello_for("example.org");
            let at = at.index(bytes.len());
            bytes[at] = byte;
            let _ = server_name(&bytes);
        }
    }
}
