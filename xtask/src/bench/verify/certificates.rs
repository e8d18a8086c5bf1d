//! Certificates of a server and of its client, by one authority, for one run.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair,
};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::verifiers::Wire;

/// Files named as Kubernetes names them: `ca.crt`, `tls.crt`, `tls.key`; and `client.crt`,
/// `client.key`.
#[derive(Debug)]
pub(super) struct Certificates {
    pub(super) dir: PathBuf,
}

impl Certificates {
    pub(super) fn make(dir: &Path) -> Result<Self> {
        fs::create_dir_all(dir)?;
        let mut params = CertificateParams::new(Vec::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        fs::write(dir.join("ca.crt"), authority.pem())?;
        for (name, usage) in [
            ("tls", ExtendedKeyUsagePurpose::ServerAuth),
            ("client", ExtendedKeyUsagePurpose::ClientAuth),
        ] {
            let key = KeyPair::generate()?;
            let mut params = CertificateParams::new(vec!["localhost".to_owned()])?;
            params.extended_key_usages.push(usage);
            fs::write(dir.join(format!("{name}.crt")), params.signed_by(&key, &authority)?.pem())?;
            fs::write(dir.join(format!("{name}.key")), key.serialize_pem())?;
        }
        Ok(Self { dir: dir.to_owned() })
    }

    /// What the client needs to know.
    pub(super) fn client(&self, wire: Wire) -> Result<Option<Arc<rustls::ClientConfig>>> {
        if wire == Wire::Plain {
            return Ok(None);
        }
        let certificate = |name: &str| {
            let path = self.dir.join(name);
            CertificateDer::from_pem_file(&path).with_context(|| format!("read {}", path.display()))
        };
        let mut roots = rustls::RootCertStore::empty();
        roots.add(certificate("ca.crt")?)?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = rustls::ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_root_certificates(roots);
        Ok(Some(Arc::new(match wire {
            Wire::Mutual => {
                let key = PrivateKeyDer::from_pem_file(self.dir.join("client.key"))
                    .context("read the client's key")?;
                builder.with_client_auth_cert(vec![certificate("client.crt")?], key)?
            }
            Wire::Plain | Wire::Tls => builder.with_no_client_auth(),
        })))
    }
}
