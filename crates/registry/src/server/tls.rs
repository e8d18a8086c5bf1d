//! Certificate and key from PEM files.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;
use zeroize::Zeroizing;

/// The files of a TLS server.
#[derive(Debug, Clone)]
pub struct TlsFiles {
    /// The certificate, followed by those that vouch for it.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// Why TLS cannot be offered.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read as PEM, or has nothing of its kind in it.
    #[error("cannot read {what} from {}", path.display())]
    Read {
        /// What should be in the file.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// What the reader found.
        #[source]
        source: rustls_pki_types::pem::Error,
    },
    /// The file is larger than any certificate chain.
    #[error("{} is larger than {MAX_FILE} bytes", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
    /// The file cannot be read at all.
    #[error("cannot open {}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// The system's word for it.
        #[source]
        source: io::Error,
    },
    /// Certificate and key do not go together, or are of a kind we cannot use.
    #[error("the certificate in {} and its key cannot be used", path.display())]
    Unusable {
        /// The certificate's file.
        path: PathBuf,
        /// What the library found.
        #[source]
        source: rustls::Error,
    },
}

/// A chain of a dozen certificates is well below this.
const MAX_FILE: u64 = 1024 * 1024;

/// Reads the files and makes an acceptor that offers HTTP/2 and HTTP/1.1.
pub(super) fn acceptor(files: &TlsFiles) -> Result<TlsAcceptor, TlsError> {
    let (certificate, key) = (read_bounded(&files.certificate)?, read_bounded(&files.key)?);
    let read = |what, path: &Path| {
        let path = path.to_path_buf();
        move |source| TlsError::Read { what, path, source }
    };
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(&certificate)
        .collect::<Result<_, _>>()
        .map_err(read("certificates", &files.certificate))?;
    let key = PrivateKeyDer::from_pem_slice(&key).map_err(read("a private key", &files.key))?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let unusable = |source| TlsError::Unusable { path: files.certificate.clone(), source };
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(unusable)?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(unusable)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Bounded by what is read: a device has no size to ask for.
fn read_bounded(path: &Path) -> Result<Zeroizing<Vec<u8>>, TlsError> {
    let failed = |source| TlsError::Open { path: path.to_path_buf(), source };
    let mut bytes = Zeroizing::new(Vec::new());
    let file = File::open(path).map_err(failed)?;
    file.take(MAX_FILE + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(TlsError::TooLarge { path: path.to_path_buf() });
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, FileType, Mode, mknodat};

    #[test]
    fn a_file_without_a_size_is_read_to_the_bound_and_no_further() {
        let root = tempfile::tempdir().unwrap();
        let pipe = root.path().join("pipe");
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let writer = std::thread::spawn({
            let pipe = pipe.clone();
            move || std::fs::write(pipe, vec![b'x'; 2 * 1024 * 1024])
        });
        assert!(matches!(read_bounded(&pipe), Err(TlsError::TooLarge { .. })));
        assert!(writer.join().unwrap().is_err(), "the rest was not taken");
    }
}
