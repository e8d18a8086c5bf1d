//! Reading an index or a manifest from bytes that a stranger sent.

use std::collections::BTreeMap;

use super::strict::{self, Fault, MAX_DEPTH, Outline, Violation};
use super::{Descriptor, Index, MAX_MANIFEST_BYTES, Manifest, media_type};
use crate::quote::quote;

/// An index or a manifest: what a registry answers under `/manifests/`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(clippy::large_enum_variant, reason = "one per request, and seldom moved")]
pub enum Document {
    /// Many manifests, to choose from.
    Index(Index),
    /// One image or artifact.
    Manifest(Manifest),
}

/// Why bytes are not an index or manifest that everybody would read alike.
#[derive(Debug, thiserror::Error)]
pub enum ParseManifestError {
    /// Larger than any registry takes.
    #[error("the manifest has {size} bytes, more than the {MAX_MANIFEST_BYTES} that are allowed")]
    TooLarge {
        /// How many bytes there were.
        size: usize,
    },
    /// Not JSON, or a field has the wrong type or is missing.
    #[error("the manifest is not valid JSON of its kind")]
    Json(#[source] serde_json::Error),
    /// The top level is something other than an object.
    #[error("the manifest is JSON but not an object")]
    NotAnObject,
    /// Nested too deep for any image.
    #[error("the manifest nests deeper than {MAX_DEPTH} levels (line {line})")]
    Depth {
        /// Where.
        line: usize,
    },
    /// An object has a key twice: one reader takes the first, another the last.
    #[error("the manifest has the key {key:?} twice in one object (line {line}, column {column})")]
    DuplicateKey {
        /// The key.
        key: String,
        /// Where the second one is.
        line: usize,
        /// Where in that line.
        column: usize,
    },
    /// A field written in other letters: some readers take it for the field, some do not.
    #[error(
        "the manifest writes {field:?} as {found:?} (line {line}), which only some readers take for the field"
    )]
    MisspeltKey {
        /// As written.
        found: String,
        /// The field it resembles.
        field: &'static str,
        /// Where.
        line: usize,
    },
    /// `schemaVersion` is not 2.
    #[error(
        "the manifest says schemaVersion {}, only 2 is known",
        found.map_or_else(|| "nothing".to_owned(), |n| n.to_string())
    )]
    SchemaVersion {
        /// The number written, if one was.
        found: Option<u64>,
    },
    /// The format of 2014, which has no config and whose digest covers only part of it.
    #[error(
        "this is a Docker schema 1 manifest, which is not supported; push the image again with a current tool to convert it"
    )]
    Schema1,
    /// Neither an index nor a manifest that we know.
    #[error("media type {media_type:?} is not an image index or manifest; known are: {}", media_type::ACCEPTED.join(", "))]
    UnknownMediaType {
        /// As written or declared.
        media_type: String,
    },
    /// The registry and the document itself say different things.
    #[error("the manifest was sent as {declared:?} but says it is {written:?}")]
    Disagreement {
        /// What the `Content-Type` or the descriptor said.
        declared: String,
        /// What the `mediaType` field says.
        written: String,
    },
    /// Both an index and a manifest, depending on who reads it.
    #[error(
        "the manifest has both `manifests` and `{other}`: it could be read as an index or as an image"
    )]
    Ambiguous {
        /// The field that only a manifest has.
        other: &'static str,
    },
    /// The media type names one kind, the fields are those of the other.
    #[error("the manifest is called {media_type:?} but has no `{missing}`")]
    WrongShape {
        /// What it is called.
        media_type: String,
        /// The field that kind must have.
        missing: &'static str,
    },
    /// No media type, and none of the fields that would tell.
    #[error(
        "the document has no mediaType and none of `manifests`, `config` and `layers`: it is neither an index nor a manifest"
    )]
    Shapeless,
}

/// The two kinds of document.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Index,
    Manifest,
}

impl Document {
    /// Reads `bytes`.
    ///
    /// `declared_media_type` is what the `Content-Type` or the descriptor said, if anything;
    /// types that say nothing (`application/json`) count as none. What the document is, is
    /// decided by its `mediaType` field, else by what was declared, else by its fields; where
    /// two of these are there they must agree. Afterwards the `media_type` of the document is
    /// always set.
    pub fn parse(
        bytes: &[u8],
        declared_media_type: Option<&str>,
    ) -> Result<Self, ParseManifestError> {
        if bytes.len() > MAX_MANIFEST_BYTES {
            return Err(ParseManifestError::TooLarge { size: bytes.len() });
        }
        if bytes.trim_ascii_start().first().is_some_and(|b| b"[\"0123456789-tfn".contains(b)) {
            return Err(ParseManifestError::NotAnObject);
        }
        let outline = strict::outline(bytes)?;
        let declared = declared_media_type.and_then(media_type::declared);
        let (kind, media_type) = classify(&outline, declared)?;
        match kind {
            Kind::Index => {
                let mut index: Index =
                    serde_json::from_slice(bytes).map_err(ParseManifestError::Json)?;
                index.media_type = Some(media_type);
                Ok(Self::Index(index))
            }
            Kind::Manifest => {
                let mut manifest: Manifest =
                    serde_json::from_slice(bytes).map_err(ParseManifestError::Json)?;
                manifest.media_type = Some(media_type);
                Ok(Self::Manifest(manifest))
            }
        }
    }

    /// What it is, as a registry must be told.
    pub fn media_type(&self) -> &str {
        match self {
            Self::Index(index) => index.media_type.as_deref().unwrap_or(media_type::OCI_INDEX),
            Self::Manifest(manifest) => {
                manifest.media_type.as_deref().unwrap_or(media_type::OCI_MANIFEST)
            }
        }
    }

    /// What it speaks of, when it is a signature, an attestation or another referrer.
    pub fn subject(&self) -> Option<&Descriptor> {
        match self {
            Self::Index(index) => index.subject.as_ref(),
            Self::Manifest(manifest) => manifest.subject.as_ref(),
        }
    }

    /// The kind of artifact: `artifactType`, else the media type of a manifest's config, which
    /// is the rule of the distribution specification for what a referrers list shows.
    pub fn artifact_type(&self) -> Option<&str> {
        match self {
            Self::Index(index) => index.artifact_type.as_deref(),
            Self::Manifest(manifest) => {
                Some(manifest.artifact_type.as_deref().unwrap_or(&manifest.config.media_type))
            }
        }
    }

    /// The annotations of the document itself.
    pub fn annotations(&self) -> &BTreeMap<String, String> {
        match self {
            Self::Index(index) => &index.annotations,
            Self::Manifest(manifest) => &manifest.annotations,
        }
    }

    /// The entries of an index; a manifest has none.
    pub fn children(&self) -> &[Descriptor] {
        match self {
            Self::Index(index) => &index.manifests,
            Self::Manifest(_) => &[],
        }
    }

    /// The config and then the layers of a manifest; an index has none.
    pub fn blobs(&self) -> impl Iterator<Item = &Descriptor> {
        let (config, layers) = match self {
            Self::Index(_) => (None, [].as_slice()),
            Self::Manifest(manifest) => (Some(&manifest.config), manifest.layers.as_slice()),
        };
        config.into_iter().chain(layers)
    }
}

impl From<Fault> for ParseManifestError {
    fn from(Fault { violation, source }: Fault) -> Self {
        let (line, column) = (source.line(), source.column());
        match violation {
            None => Self::Json(source),
            Some(Violation::Depth) => Self::Depth { line },
            Some(Violation::DuplicateKey(key)) => {
                Self::DuplicateKey { key: quote(&key), line, column }
            }
            Some(Violation::Misspelt { found, field }) => {
                Self::MisspeltKey { found: quote(&found), field, line }
            }
        }
    }
}

/// Which kind the document is and the media type it goes by.
fn classify(
    outline: &Outline,
    declared: Option<String>,
) -> Result<(Kind, String), ParseManifestError> {
    let has = |field: &str| outline.fields.contains(field);
    let written = outline.media_type.clone();
    let schema_1_type =
        [&written, &declared].into_iter().flatten().any(|t| media_type::is_schema_1(t));
    if schema_1_type || outline.schema_version == Some(1) || has("fsLayers") {
        return Err(ParseManifestError::Schema1);
    }
    for media_type in [&written, &declared].into_iter().flatten() {
        kind_of(media_type)?;
    }
    if let (Some(declared), Some(written)) = (&declared, &written)
        && declared != written
    {
        return Err(ParseManifestError::Disagreement {
            declared: quote(declared),
            written: quote(written),
        });
    }
    if outline.schema_version != Some(2) {
        return Err(ParseManifestError::SchemaVersion { found: outline.schema_version });
    }
    let other = ["layers", "config"].into_iter().find(|field| has(field));
    let shape = match (has("manifests"), other) {
        (true, Some(other)) => return Err(ParseManifestError::Ambiguous { other }),
        (true, None) => Some(Kind::Index),
        (false, Some(_)) => Some(Kind::Manifest),
        (false, None) => None,
    };
    match (written.or(declared), shape) {
        (None, None) => Err(ParseManifestError::Shapeless),
        (None, Some(Kind::Index)) => Ok((Kind::Index, media_type::OCI_INDEX.to_owned())),
        (None, Some(Kind::Manifest)) => Ok((Kind::Manifest, media_type::OCI_MANIFEST.to_owned())),
        (Some(media_type), shape) => {
            let kind = kind_of(&media_type)?;
            if shape == Some(kind) {
                return Ok((kind, media_type));
            }
            let missing = match kind {
                Kind::Index => "manifests",
                Kind::Manifest => "config",
            };
            Err(ParseManifestError::WrongShape { media_type, missing })
        }
    }
}

fn kind_of(media_type: &str) -> Result<Kind, ParseManifestError> {
    if media_type::is_index(media_type) {
        Ok(Kind::Index)
    } else if media_type::is_manifest(media_type) {
        Ok(Kind::Manifest)
    } else {
        Err(ParseManifestError::UnknownMediaType { media_type: quote(media_type) })
    }
}
