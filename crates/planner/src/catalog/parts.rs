//! Parts of a TOML text that are TOML texts themselves: a question needs few of the tables of the large built-in files, and reading TOML takes
//! longer than finding them.

/// Text before the first table: the keys at the top of a file.
pub fn head(text: &str) -> &str {
    text.find("\n[").map_or(text, |end| &text[..=end])
}

/// Text of each table of the only array of tables in a file, from its heading `[[name]]`, in order.
pub(super) fn tables<'a>(text: &'a str, name: &str) -> impl Iterator<Item = &'a str> {
    let heading = format!("\n[[{name}]]\n");
    let starts: Vec<usize> = text.match_indices(&heading).map(|(before, _)| before + 1).collect();
    let ends: Vec<usize> = starts.iter().skip(1).copied().chain([text.len()]).collect();
    starts.into_iter().zip(ends).map(|(start, end)| &text[start..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_its_head_and_its_tables() {
        let text = "# of two\nname = \"a\"\n\n[[part]]\nvalue = 1\n\n[[part]]\n\n[part.value]\nof = 2\n";
        assert_eq!(head(text), "# of two\nname = \"a\"\n\n");
        assert_eq!(
            tables(text, "part").collect::<Vec<_>>(),
            ["[[part]]\nvalue = 1\n\n", "[[part]]\n\n[part.value]\nof = 2\n"]
        );
        assert_eq!(tables(text, "other").count(), 0);
        assert_eq!(head("name = \"a\"\n"), "name = \"a\"\n");
    }
}
