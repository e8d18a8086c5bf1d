//! Switches the loopback interface on: programs expect 127.0.0.1 to work, and no tool of the image
//! may be relied on.

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketType, recv, sendto, socket};

use crate::step::{Failed, Step as _};

/// The loopback interface is the first that every network namespace has.
const LOOPBACK_INDEX: i32 = 1;

pub(crate) fn up() -> Result<(), Failed> {
    // Of the netlink protocols, number 0, which "none" stands for, is the one for routes and links.
    let route =
        socket(AddressFamily::NETLINK, SocketType::DGRAM, None).step("open", "a netlink socket")?;
    sendto(&route, &message(), SendFlags::empty(), &SocketAddrNetlink::new(0, 0))
        .step("switch on", "the loopback interface")?;
    let mut answer = [0; 256];
    let (received, _) = recv(&route, &mut answer, RecvFlags::empty())
        .step("switch on", "the loopback interface")?;
    match error_of(&answer[..received.min(answer.len())]) {
        Some(0) => Ok(()),
        code => {
            Err(Failed::new("switch on the loopback interface", format!("netlink said {code:?}")))
        }
    }
}

/// `nlmsghdr` and `ifinfomsg`: set the flag "up" of one interface, and acknowledge.
fn message() -> Vec<u8> {
    const RTM_NEWLINK: u16 = 16;
    const NLM_F_REQUEST_ACK: u16 = 1 | 4;
    const IFF_UP: u32 = 1;
    const LENGTH: u32 = 16 + 16;
    let mut bytes = Vec::new();
    bytes.extend(LENGTH.to_ne_bytes());
    bytes.extend(RTM_NEWLINK.to_ne_bytes());
    bytes.extend(NLM_F_REQUEST_ACK.to_ne_bytes());
    bytes.extend([0; 8]); // sequence and port: one message, one socket
    bytes.extend([0; 4]); // family, padding, type
    bytes.extend(LOOPBACK_INDEX.to_ne_bytes());
    bytes.extend(IFF_UP.to_ne_bytes());
    bytes.extend(IFF_UP.to_ne_bytes()); // which flags change
    bytes
}

/// The code of an `nlmsgerr`, 0 for an acknowledgement.
fn error_of(answer: &[u8]) -> Option<i32> {
    const NLMSG_ERROR: u16 = 2;
    let kind = answer.get(4..6)?.try_into().ok().map(u16::from_ne_bytes)?;
    let code = answer.get(16..20)?.try_into().ok().map(i32::from_ne_bytes)?;
    (kind == NLMSG_ERROR).then_some(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_has_the_kernels_layout() {
        let bytes = message();
        assert_eq!(bytes.len(), 32);
        assert_eq!(bytes[..4], 32u32.to_ne_bytes());
        assert_eq!(bytes[20..24], 1i32.to_ne_bytes());
        let mut answer = vec![0; 36];
        answer[4..6].copy_from_slice(&2u16.to_ne_bytes());
        assert_eq!(error_of(&answer), Some(0));
        assert_eq!(error_of(&answer[..17]), None);
    }
}
