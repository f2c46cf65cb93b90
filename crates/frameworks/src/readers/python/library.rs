//! Classes and functions of packages that are not there, as a framework's reader knows them.

use crate::readers::document::{Entries, Node};

/// Key of the object in the arguments of a method.
pub(super) const OBJECT: &str = ".";

/// Results of a package's calls.
pub(crate) trait Library {
    /// Result of a class, a class method or a function, by the name that is called; none where the library does not know it.
    fn called(&self, name: &str, arguments: &Entries, line: u32) -> Option<Node>;

    /// Result of a method of a value; none where the library does not know it.
    fn method(&self, object: &Node, name: &str, arguments: &Entries, line: u32) -> Option<Node>;
}

/// Empty library.
impl Library for () {
    fn called(&self, _: &str, _: &Entries, _: u32) -> Option<Node> {
        None
    }

    fn method(&self, _: &Node, _: &str, _: &Entries, _: u32) -> Option<Node> {
        None
    }
}
