//! Orders, words and descriptors over a socket between the two of us.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Far above what orders need, and below what a socket takes at once.
const MAX_MESSAGE: usize = 64 * 1024;
/// The plugin and its input.
const DESCRIPTORS: usize = 2;

/// Why the two did not understand each other.
#[derive(Debug, thiserror::Error)]
pub(in crate::external) enum MessageError {
    /// The socket did not carry it.
    #[error("cannot {step} the helper's socket")]
    Socket {
        step: &'static str,
        #[source]
        source: io::Error,
    },
    /// Not what the other side says.
    #[error("a message between plugin helper and caller is not understood")]
    Words(#[source] serde_json::Error),
    /// Too much, or not the descriptors that belong to it.
    #[error("a message between plugin helper and caller is cut or lacks its descriptors")]
    Cut,
}

/// One end of the socket.
#[derive(Debug)]
pub(in crate::external) struct Control(OwnedFd);

/// Two connected ends; messages keep their borders.
pub(in crate::external) fn pair() -> Result<(Control, OwnedFd), MessageError> {
    let (ours, theirs) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )
    .map_err(|errno| MessageError::Socket { step: "make", source: errno.into() })?;
    Ok((Control(ours), theirs))
}

impl Control {
    pub(super) fn new(socket: OwnedFd) -> Self {
        Self(socket)
    }

    /// Sends a message with descriptors.
    pub(in crate::external) fn send<T: Serialize>(
        &self,
        message: &T,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(), MessageError> {
        let text = serde_json::to_vec(message).map_err(MessageError::Words)?;
        if text.len() > MAX_MESSAGE {
            return Err(MessageError::Cut);
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
            return Err(MessageError::Cut);
        }
        rustix::net::sendmsg(&self.0, &[IoSlice::new(&text)], &mut control, SendFlags::NOSIGNAL)
            .map(drop)
            .map_err(|errno| MessageError::Socket { step: "write to", source: errno.into() })
    }

    /// The next message and its descriptors; none at the end, and where nothing is there yet on a
    /// socket that does not wait.
    pub(in crate::external) fn receive<T: DeserializeOwned>(
        &self,
        flags: RecvFlags,
    ) -> Result<Option<(T, Vec<OwnedFd>)>, MessageError> {
        let mut text = vec![0_u8; MAX_MESSAGE];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = flags | RecvFlags::CMSG_CLOEXEC;
        let received = loop {
            match rustix::net::recvmsg(
                &self.0,
                &mut [IoSliceMut::new(&mut text)],
                &mut control,
                flags,
            ) {
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::CONNRESET) => return Ok(None),
                other => break other,
            }
        };
        let received = received
            .map_err(|errno| MessageError::Socket { step: "read", source: errno.into() })?;
        if received.bytes == 0 {
            return Ok(None);
        }
        if received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
            return Err(MessageError::Cut);
        }
        let mut descriptors = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                descriptors.extend(rights);
            }
        }
        let message =
            serde_json::from_slice(&text[..received.bytes]).map_err(MessageError::Words)?;
        Ok(Some((message, descriptors)))
    }
}

impl AsFd for Control {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
