//! The terminal: its second screen, without echo, and back.

use std::io::{self, Read as _, Write as _};

use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr,
};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::frame::Size;

/// The second screen, without a cursor.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";

/// What a person or the system asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    /// q, Ctrl-C, Ctrl-D, or the end of the terminal.
    Quit,
    /// The terminal has another size.
    Resized,
}

/// Where frames are drawn, and a person types.
pub(super) trait Terminal {
    fn size(&self) -> Size;

    /// Draws over the frame before, so that nothing flickers.
    fn draw(&mut self, lines: &[String]) -> io::Result<()>;

    /// The next event. It may be dropped and called again.
    async fn event(&mut self) -> Event;
}

/// The terminal while frames are drawn. Dropping it restores the terminal.
pub(super) struct Screen {
    _before: Before,
    keys: UnboundedReceiver<u8>,
    resized: Signal,
    interrupted: Signal,
    terminated: Signal,
    hung_up: Signal,
}

/// The terminal's settings as they were.
struct Before(Termios);

impl Drop for Before {
    fn drop(&mut self) {
        // A terminal that is gone needs nothing.
        let _ = write(LEAVE);
        let _ = tcsetattr(io::stdin(), OptionalActions::Flush, &self.0);
    }
}

impl Screen {
    pub(super) fn open() -> io::Result<Self> {
        let resized = signal(SignalKind::window_change())?;
        let interrupted = signal(SignalKind::interrupt())?;
        let terminated = signal(SignalKind::terminate())?;
        let hung_up = signal(SignalKind::hangup())?;
        let before = tcgetattr(io::stdin())?;
        let mut quiet = before.clone();
        quiet.local_modes -= LocalModes::ICANON | LocalModes::ECHO;
        // A suspended program would leave its screen behind.
        quiet.special_codes[SpecialCodeIndex::VSUSP] = 0;
        tcsetattr(io::stdin(), OptionalActions::Now, &quiet)?;
        let before = Before(before);
        write(ENTER)?;
        Ok(Self {
            _before: before,
            keys: keys(),
            resized,
            interrupted,
            terminated,
            hung_up,
        })
    }
}

impl Terminal for Screen {
    fn size(&self) -> Size {
        match console::Term::stdout().size_checked() {
            Some((rows, columns)) => Size::Of {
                rows: rows.into(),
                columns: columns.into(),
            },
            None => Size::Of {
                rows: 24,
                columns: 80,
            },
        }
    }

    fn draw(&mut self, lines: &[String]) -> io::Result<()> {
        let mut text = String::from("\x1b[H");
        for (at, line) in lines.iter().enumerate() {
            if at > 0 {
                text.push_str("\r\n");
            }
            text.push_str(line);
            text.push_str("\x1b[K");
        }
        text.push_str("\x1b[J");
        write(&text)
    }

    async fn event(&mut self) -> Event {
        // Ctrl-C is a signal here, and Ctrl-D a byte.
        const END: u8 = 4;
        loop {
            tokio::select! {
                key = self.keys.recv() => match key {
                    Some(b'q' | b'Q' | END) | None => return Event::Quit,
                    Some(_) => {}
                },
                _ = self.resized.recv() => return Event::Resized,
                _ = self.interrupted.recv() => return Event::Quit,
                _ = self.terminated.recv() => return Event::Quit,
                _ = self.hung_up.recv() => return Event::Quit,
            }
        }
    }
}

/// The bytes that are typed. The thread ends with the process: a read cannot be interrupted.
fn keys() -> UnboundedReceiver<u8> {
    let (sender, receiver) = unbounded_channel();
    std::thread::spawn(move || {
        let mut byte = [0];
        while let Ok(1) = io::stdin().read(&mut byte) {
            if sender.send(byte[0]).is_err() {
                return;
            }
        }
    });
    receiver
}

fn write(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}
