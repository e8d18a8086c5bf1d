//! Certificate and key from PEM files, read again when they change, or given by the program itself.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
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
    /// Let in only clients with a certificate that one of these vouches for.
    pub client_ca: Option<PathBuf>,
    /// The oldest version that is spoken.
    pub oldest: TlsVersion,
}

/// A version of TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TlsVersion {
    /// What some tools of continuous integration still speak.
    #[default]
    V1_2,
    /// For peers that are known to speak it.
    V1_3,
}

impl TlsFiles {
    /// A server that lets in everyone.
    pub fn new(certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        let (certificate, key) = (certificate.into(), key.into());
        Self { certificate, key, client_ca: None, oldest: TlsVersion::default() }
    }
}

/// A certificate and its key that are in no file.
pub struct Identity {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Identity({} certificates)", self.chain.len())
    }
}

impl Identity {
    /// From PEM; `place` is where that came from, for messages.
    pub fn from_pem(chain: &[u8], key: &[u8], place: &Path) -> Result<Self, TlsError> {
        let chain = certificates(place, chain)?;
        Ok(Self { chain, key: private_key(place, key)? })
    }

    fn read(files: &TlsFiles) -> Result<Self, TlsError> {
        let (certificate, key) = (read_bounded(&files.certificate)?, read_bounded(&files.key)?);
        let chain = certificates(&files.certificate, &certificate)?;
        Ok(Self { chain, key: private_key(&files.key, &key)? })
    }
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
    /// The certificates that should vouch for clients do not.
    #[error("{} has no certificate that can vouch for clients", path.display())]
    ClientCa {
        /// The file.
        path: PathBuf,
        /// What the library found; none when the file is empty of certificates.
        #[source]
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
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

/// For [`TlsVersion::V1_3`].
static ONLY_1_3: &[&rustls::SupportedProtocolVersion] = &[&rustls::version::TLS13];

/// Looking more often would be a system call for every connection, and renewals are rare.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// A TLS server whose files may be renewed while it runs.
#[derive(Clone)]
pub struct Tls(Arc<Shared>);

struct Shared {
    files: TlsFiles,
    /// Instead of certificate and key in files.
    given: Option<Mutex<Identity>>,
    look_again: Duration,
    current: Mutex<Current>,
}

impl Shared {
    /// When each file was last written; none for a file that cannot be looked at.
    fn written(files: &TlsFiles, is_given: bool) -> [Option<SystemTime>; 3] {
        let written = |path: &Path| std::fs::metadata(path).and_then(|m| m.modified()).ok();
        let ca = files.client_ca.as_deref().and_then(written);
        match is_given {
            true => [None, None, ca],
            false => [written(&files.certificate), written(&files.key), ca],
        }
    }

    fn acceptor(&self) -> Result<TlsAcceptor, TlsError> {
        match &self.given {
            None => acceptor(&self.files, &Identity::read(&self.files)?),
            Some(given) => {
                acceptor(&self.files, &given.lock().unwrap_or_else(PoisonError::into_inner))
            }
        }
    }
}

struct Current {
    acceptor: TlsAcceptor,
    written: [Option<SystemTime>; 3],
    looked: Instant,
}

impl Current {
    fn new(acceptor: TlsAcceptor, written: [Option<SystemTime>; 3]) -> Mutex<Self> {
        Mutex::new(Self { acceptor, written, looked: Instant::now() })
    }
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Tls").field(&self.0.files).finish()
    }
}

impl Tls {
    /// Reads the files. A server that cannot offer TLS must not start.
    pub fn load(files: TlsFiles) -> Result<Self, TlsError> {
        Self::load_and_look(files, LOOK_AGAIN)
    }

    /// With what the program has itself, and the one who may give the next. Of `files` only
    /// `client_ca` and `oldest` count, and `certificate` as the name of the place in messages.
    pub fn given(identity: Identity, files: TlsFiles) -> Result<(Self, Renewer), TlsError> {
        let written = Shared::written(&files, true);
        let current = Current::new(acceptor(&files, &identity)?, written);
        let given = Some(Mutex::new(identity));
        let shared = Arc::new(Shared { files, given, look_again: LOOK_AGAIN, current });
        Ok((Self(Arc::clone(&shared)), Renewer(shared)))
    }

    fn load_and_look(files: TlsFiles, look_again: Duration) -> Result<Self, TlsError> {
        // Before reading: what is written between the two is read again.
        let written = Shared::written(&files, false);
        let current = Current::new(acceptor(&files, &Identity::read(&files)?)?, written);
        Ok(Self(Arc::new(Shared { files, given: None, look_again, current })))
    }

    /// For the next connection. Files that changed are read; ones that cannot be used are told
    /// and the old ones stay, since half a renewal must not close the door.
    pub(super) fn acceptor(&self) -> TlsAcceptor {
        let shared = &self.0;
        let mut current = shared.current.lock().unwrap_or_else(PoisonError::into_inner);
        if current.looked.elapsed() < shared.look_again {
            return current.acceptor.clone();
        }
        current.looked = Instant::now();
        let written = Shared::written(&shared.files, shared.given.is_some());
        if written != current.written {
            match shared.acceptor() {
                Ok(acceptor) => {
                    tracing::info!(certificate = %shared.files.certificate.display(), "certificate read again");
                    current.acceptor = acceptor;
                    current.written = written;
                }
                Err(error) => {
                    let error: &dyn std::error::Error = &error;
                    tracing::warn!(error, "the new certificate cannot be used; the old one stays");
                }
            }
        }
        current.acceptor.clone()
    }
}

/// Gives a server its next certificate.
pub struct Renewer(Arc<Shared>);

impl std::fmt::Debug for Renewer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Renewer").field(&self.0.files).finish()
    }
}

impl Renewer {
    /// Connections that come from now on are shown this one; those that are there stay. What cannot
    /// be used changes nothing.
    pub fn renew(&self, new: Identity) -> Result<(), TlsError> {
        let acceptor = acceptor(&self.0.files, &new)?;
        if let Some(given) = &self.0.given {
            *given.lock().unwrap_or_else(PoisonError::into_inner) = new;
        }
        self.0.current.lock().unwrap_or_else(PoisonError::into_inner).acceptor = acceptor;
        Ok(())
    }
}

/// Makes an acceptor that offers HTTP/2 and HTTP/1.1.
fn acceptor(files: &TlsFiles, identity: &Identity) -> Result<TlsAcceptor, TlsError> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let unusable = |source| TlsError::Unusable { path: files.certificate.clone(), source };
    let builder = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(match files.oldest {
            TlsVersion::V1_2 => rustls::DEFAULT_VERSIONS,
            TlsVersion::V1_3 => ONLY_1_3,
        })
        .map_err(unusable)?;
    let builder = match &files.client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => builder.with_client_cert_verifier(client_verifier(path, provider)?),
    };
    let (chain, key) = (identity.chain.clone(), identity.key.clone_key());
    let mut config = builder.with_single_cert(chain, key).map_err(unusable)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn certificates(path: &Path, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().map_err(|source| TlsError::Read {
        what: "certificates",
        path: path.to_path_buf(),
        source,
    })
}

fn private_key(path: &Path, pem: &[u8]) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_slice(pem).map_err(|source| TlsError::Read {
        what: "a private key",
        path: path.to_path_buf(),
        source,
    })
}

/// Every client must show a certificate that the file vouches for.
fn client_verifier(
    path: &Path,
    provider: Arc<rustls::crypto::CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let unusable = |source: Box<dyn std::error::Error + Send + Sync>| TlsError::ClientCa {
        path: path.to_path_buf(),
        source: Some(source),
    };
    let mut roots = rustls::RootCertStore::empty();
    for certificate in certificates(path, &read_bounded(path)?)? {
        roots.add(certificate).map_err(|e| unusable(e.into()))?;
    }
    if roots.is_empty() {
        return Err(TlsError::ClientCa { path: path.to_path_buf(), source: None });
    }
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
        .build()
        .map_err(|e| unusable(e.into()))
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

    fn certificate(files: &TlsFiles) {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        std::fs::write(&files.certificate, made.cert.pem()).unwrap();
        std::fs::write(&files.key, made.signing_key.serialize_pem()).unwrap();
    }

    /// The configuration behind an acceptor, to tell two apart.
    fn which(tls: &Tls) -> *const rustls::ServerConfig {
        Arc::as_ptr(tls.acceptor().config())
    }

    #[test]
    fn a_renewed_certificate_is_taken_and_a_broken_one_is_not() {
        let root = tempfile::tempdir().unwrap();
        let files = TlsFiles::new(root.path().join("cert.pem"), root.path().join("key.pem"));
        certificate(&files);
        let tls = Tls::load_and_look(files.clone(), Duration::ZERO).unwrap();
        let first = which(&tls);
        assert_eq!(which(&tls), first, "nothing changed");
        // Another time, even where the clock of the file system is coarse.
        let touch = |seconds| {
            let then = SystemTime::now() + Duration::from_secs(seconds);
            File::options().append(true).open(&files.key).unwrap().set_modified(then).unwrap();
        };
        std::fs::write(&files.key, "nonsense").unwrap();
        touch(10);
        assert_eq!(which(&tls), first, "the old one stays");
        certificate(&files);
        touch(20);
        assert_ne!(which(&tls), first);
    }

    fn made() -> Identity {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let (chain, key) = (made.cert.pem(), made.signing_key.serialize_pem());
        Identity::from_pem(chain.as_bytes(), key.as_bytes(), Path::new("made")).unwrap()
    }

    #[test]
    fn a_given_certificate_is_renewed_at_once_and_by_nothing_that_cannot_be_used() {
        let (tls, renewer) = Tls::given(made(), TlsFiles::new("made", "made")).unwrap();
        let first = which(&tls);
        let (one, other) = (made(), made());
        let mixed = Identity { chain: one.chain.clone(), key: other.key.clone_key() };
        assert!(matches!(renewer.renew(mixed), Err(TlsError::Unusable { .. })));
        assert_eq!(which(&tls), first, "the old one stays");
        renewer.renew(one).unwrap();
        assert_ne!(which(&tls), first);
    }

    #[test]
    fn a_file_without_certificates_vouches_for_nobody() {
        let root = tempfile::tempdir().unwrap();
        let mut files = TlsFiles::new(root.path().join("cert.pem"), root.path().join("key.pem"));
        certificate(&files);
        let empty = root.path().join("ca.pem");
        std::fs::write(&empty, "").unwrap();
        files.client_ca = Some(empty);
        assert!(matches!(Tls::load(files), Err(TlsError::ClientCa { source: None, .. })));
    }
}
