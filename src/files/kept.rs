//! Files as they were, kept until all that replace them are in their places.

use std::path::{Path, PathBuf};

use tempfile::{Builder, TempPath};

/// First and last letters of the names of drafts, and of second names.
pub(super) const DRAFT: [&str; 2] = [".meshwright-", ".new"];

/// Second names of files, under which they can be put back.
#[derive(Debug, Default)]
pub struct Kept(Vec<(PathBuf, Former)>);

#[derive(Debug)]
enum Former {
    /// Nothing was there.
    Absent,
    /// A file, with its second name; it ends with this value.
    File(TempPath),
    /// A file of which this file system makes no second name.
    Lost,
}

impl Kept {
    /// Keeps the file at a place too, so that it can be put back.
    pub fn keep(&mut self, place: &Path) {
        let folder = place.parent().unwrap_or(Path::new("."));
        let former = if place.symlink_metadata().is_err() {
            Former::Absent
        } else {
            let link = Builder::new()
                .prefix(DRAFT[0])
                .suffix(DRAFT[1])
                .make_in(folder, |second| std::fs::hard_link(place, second));
            link.map_or(Former::Lost, |link| Former::File(link.into_temp_path()))
        };
        self.0.push((place.to_owned(), former));
    }

    /// Takes over the files that another has kept.
    pub fn include(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// Puts everything back, as far as the file system allows.
    pub fn put_back(self) {
        for (place, former) in self.0 {
            let _ = match former {
                Former::Absent => std::fs::remove_file(place),
                Former::File(second) => std::fs::rename(&second, place),
                Former::Lost => Ok(()),
            };
        }
    }
}
