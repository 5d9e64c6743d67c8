//! Where `yasmin host` asks: a socket that only root may open, one question a connection.
//!
//! Nobody is waited for: who does not ask in time, asks too much or does not read is let go.

use rustix::event::PollFlags;
use rustix::fd::{AsFd, BorrowedFd};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use yasmin_control::host::{ASK_BYTES, Answer, Ask};

const VISITORS_MAX: usize = 32;
const ASKS_WITHIN: Duration = Duration::from_secs(5);

pub struct Desk {
    path: PathBuf,
    listener: UnixListener,
    visitors: Vec<Visitor>,
}

struct Visitor {
    socket: UnixStream,
    inbox: Vec<u8>,
    until: Instant,
    /// What has to be done before it is answered.
    waits: Option<Vec<usize>>,
}

/// What a visitor wants, and how to find it again.
pub struct Question {
    pub ask: Result<Ask, String>,
    visitor: Visitor,
}

impl Desk {
    /// # Errors
    /// Another broker listens there, or the kernel's.
    pub fn open(path: &Path) -> io::Result<Self> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        if UnixStream::connect(path).is_ok() {
            return Err(ErrorKind::AddrInUse.into());
        }
        // Of a broker that was killed.
        let _ = std::fs::remove_file(path);
        let listener = UnixListener::bind(path)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
        listener.set_nonblocking(true)?;
        Ok(Self { path: path.to_owned(), listener, visitors: Vec::new() })
    }

    pub fn watched(&self) -> impl Iterator<Item = (BorrowedFd<'_>, PollFlags)> {
        let visitors = self.visitors.iter().map(|visitor| visitor.socket.as_fd());
        std::iter::once(self.listener.as_fd()).chain(visitors).map(|fd| (fd, PollFlags::IN))
    }

    pub fn is_busy(&self) -> bool {
        !self.visitors.is_empty()
    }

    /// What is asked now.
    pub fn questions(&mut self, now: Instant) -> Vec<Question> {
        while let Ok((socket, _)) = self.listener.accept() {
            if self.visitors.len() < VISITORS_MAX && socket.set_nonblocking(true).is_ok() {
                let until = now + ASKS_WITHIN;
                self.visitors.push(Visitor { socket, inbox: Vec::new(), until, waits: None });
            }
        }
        let mut questions = Vec::new();
        for mut visitor in std::mem::take(&mut self.visitors) {
            let is_there = visitor.read();
            if visitor.waits.is_some() {
                if is_there {
                    self.visitors.push(visitor);
                }
                continue;
            }
            let end = visitor.inbox.iter().position(|&byte| byte == b'\n');
            match end {
                Some(end) => {
                    let ask = serde_json::from_slice(&visitor.inbox[..end]);
                    let ask = ask.map_err(|_| "another version of yasmin asks".to_owned());
                    questions.push(Question { ask, visitor });
                }
                None if is_there && now < visitor.until => self.visitors.push(visitor),
                None => {}
            }
        }
        questions
    }

    /// It is answered when none of these guests' memory is there any more, or not by then.
    pub fn wait(&mut self, question: Question, guests: Vec<usize>, until: Instant) {
        let mut visitor = question.visitor;
        (visitor.waits, visitor.until) = (Some(guests), until);
        self.visitors.push(visitor);
    }

    /// Answers those that wait and for which `answer` has one; it is told whether their time is over.
    pub fn answer_waiting(
        &mut self,
        now: Instant,
        answer: impl Fn(&[usize], bool) -> Option<Answer>,
    ) {
        self.visitors.retain_mut(|visitor| {
            let answer =
                visitor.waits.as_ref().and_then(|guests| answer(guests, now >= visitor.until));
            if let Some(answer) = &answer {
                visitor.say(answer);
            }
            answer.is_none()
        });
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Question {
    pub fn answer(mut self, answer: &Answer) {
        self.visitor.say(answer);
    }
}

impl Visitor {
    /// False: it has gone, or says more than it may.
    fn read(&mut self) -> bool {
        let mut buffer = [0; ASK_BYTES];
        match self.socket.read(&mut buffer) {
            Ok(0) => false,
            Ok(count) => {
                self.inbox.extend(&buffer[..count]);
                self.inbox.len() <= ASK_BYTES
            }
            Err(error) => matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted),
        }
    }

    /// What does not fit into the socket is lost: the other side sees that it is cut.
    fn say(&mut self, answer: &Answer) {
        if let Ok(text) = serde_json::to_string(answer) {
            let _ = self.socket.write_all(format!("{text}\n").as_bytes());
        }
    }
}
