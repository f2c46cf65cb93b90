//! Files of the page, in memory.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;

use super::error::ServeError;

/// Largest file of a page in bytes: its module takes 2 to 3 MB.
const LARGEST: u64 = 64 << 20;

/// One file of the page.
#[derive(Clone, Debug)]
pub(super) struct Asset {
    /// Media type.
    pub(super) media: &'static str,
    /// Content.
    pub(super) bytes: Cow<'static, [u8]>,
}

/// Files of the page by their name below its address.
#[derive(Clone, Debug, Default)]
pub struct PageFiles(BTreeMap<String, Asset>);

/// Media type of a file by the end of its name; none for a file that is no part of a page.
fn media(name: &str) -> Option<&'static str> {
    Some(match name.rsplit_once('.')?.1 {
        "html" => "text/html; charset=utf-8",
        "js" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "wasm" => "application/wasm",
        _ => return None,
    })
}

impl PageFiles {
    /// The page that the program was built with.
    ///
    /// # Errors
    ///
    /// It was built without the feature `page`.
    pub fn built_in() -> Result<Self, ServeError> {
        #[cfg(feature = "page")]
        {
            let files: [(&str, &[u8]); 5] = [
                ("index.html", include_bytes!("../../web/dist/index.html")),
                ("page.css", include_bytes!("../../web/dist/page.css")),
                ("page.js", include_bytes!("../../web/dist/page.js")),
                ("engine.js", include_bytes!("../../web/dist/engine.js")),
                ("rest.js", include_bytes!("../../web/dist/rest.js")),
            ];
            Ok(files.into_iter().map(|(name, bytes)| (name.to_owned(), Cow::Borrowed(bytes))).collect())
        }
        #[cfg(not(feature = "page"))]
        Err(ServeError::NotBuiltIn)
    }

    /// The page in a folder: its HTML, scripts, style sheets and modules, without folders below it.
    ///
    /// # Errors
    ///
    /// The folder or a file cannot be read, a file is larger than 64 MiB, or there is no index.html.
    pub fn of_folder(folder: &Path) -> Result<Self, ServeError> {
        let unreadable = |path: &Path| {
            let path = path.to_owned();
            move |source| ServeError::Unreadable { path, source }
        };
        let mut files = Vec::new();
        for entry in std::fs::read_dir(folder).map_err(unreadable(folder))? {
            let path = entry.map_err(unreadable(folder))?.path();
            let Some(name) = path.file_name().and_then(|name| name.to_str()).filter(|name| media(name).is_some())
            else {
                continue;
            };
            let metadata = std::fs::metadata(&path).map_err(unreadable(&path))?;
            if !metadata.is_file() {
                continue;
            }
            if metadata.len() > LARGEST {
                return Err(ServeError::TooLarge { bytes: metadata.len(), path });
            }
            files.push((name.to_owned(), Cow::Owned(std::fs::read(&path).map_err(unreadable(&path))?)));
        }
        let files: Self = files.into_iter().collect();
        if files.file("").is_none() { Err(ServeError::NoPage(folder.to_owned())) } else { Ok(files) }
    }

    /// File of a name; the empty name is the page itself.
    pub(super) fn file(&self, name: &str) -> Option<&Asset> {
        self.0.get(if name.is_empty() { "index.html" } else { name })
    }
}

/// Files of other kinds than a page's are left out.
impl FromIterator<(String, Cow<'static, [u8]>)> for PageFiles {
    fn from_iter<I: IntoIterator<Item = (String, Cow<'static, [u8]>)>>(files: I) -> Self {
        Self(
            files
                .into_iter()
                .filter_map(|(name, bytes)| Some((name.clone(), Asset { media: media(&name)?, bytes })))
                .collect(),
        )
    }
}
