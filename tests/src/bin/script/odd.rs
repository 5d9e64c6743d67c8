//! Signals that tell of sockets, children in borrowed memory, arguments that no call can use,
//! and Unix sockets that were accepted.

use std::io::Result;
use std::os::fd::IntoRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

use yasmin_tests::sys::{arguments, borrowed, sigio};

use crate::{Object, Script, number, ok, wrong};

pub fn run(script: &Script, words: &[&str]) -> Result<String> {
    match *words {
        ["hold"] => {
            sigio::hold();
            Ok(ok(()))
        }
        ["announce", name, how, on] => {
            let fd = script.object(name)?.fd;
            sigio::own(fd)?;
            sigio::announce(fd, on == "1", how == "ioctl").map(ok)
        }
        ["queue", name, on] => sigio::queue(script.object(name)?.fd, on == "1").map(ok),
        // All that are pending are taken.
        ["signalled"] => {
            while sigio::take(0)? {}
            Ok(ok(()))
        }
        ["signalled", timeout_ms] => {
            Ok(if sigio::take(number(timeout_ms)?)? { "told" } else { "nothing" }.to_owned())
        }
        ["vforked", name, how] => {
            let status = borrowed::child_uses(script.object(name)?.fd, how)?;
            status.map(|status| status.to_string()).ok_or_else(|| wrong(how))
        }
        ["badcall", name, form] => {
            let result = match name {
                "-" => arguments::call_unconnected(form)?,
                name => arguments::call(script.object(name)?.fd, form)?,
            };
            result.map(|result| result.to_string()).ok_or_else(|| wrong(form))
        }
        // The first one connects, the second one is accepted.
        ["unixlink", one, other] => {
            let name = format!("yasmin-test-{}-{one}", std::process::id());
            let address = SocketAddr::from_abstract_name(name)?;
            let listener = UnixListener::bind_addr(&address)?;
            let connects = UnixStream::connect_addr(&address)?;
            let (accepts, _) = listener.accept()?;
            for (name, fd) in [(one, connects.into_raw_fd()), (other, accepts.into_raw_fd())] {
                script.add(name, Object { fd, streams: None });
            }
            Ok(ok(()))
        }
        _ => Err(wrong(&words.join(" "))),
    }
}
