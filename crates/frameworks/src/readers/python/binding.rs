//! Arguments of a call as values of the parameters of a function.

use super::functions::Parameters;
use super::holes::{OPEN, is_known, is_open, unknown};
use super::names::Names;
use crate::readers::document::{Entries, Node, NodeValue, TableEntry};

/// Gives parameters the values of their arguments. Where arguments are not known, as those of `**given`, neither are
/// the parameters that they may be for, whatever their defaults; nothing where Python refuses the call.
pub(super) fn bind(parameters: &Parameters, arguments: &Entries, names: &mut Names, line: u32) -> Option<()> {
    let (mut rest, mut more) = (Vec::new(), Entries::new());
    let mut given = Vec::new();
    for TableEntry { key, line: at, value } in arguments.iter().filter(|entry| entry.key != OPEN) {
        let name = match key.parse::<usize>() {
            Ok(place) => parameters.by_place.get(place).copied(),
            Err(_) => parameters.named().find(|name| name == key),
        };
        match name {
            Some(name) => {
                given.push(name);
                if is_known(value) { names.set(name, value.clone()) } else { names.forget(name) }
            }
            None if key.parse::<usize>().is_ok() => rest.push(value.clone()),
            None => more.push(TableEntry::new(key, *at, value.clone())),
        }
    }
    let open = is_open(arguments);
    if open {
        parameters.named().filter(|name| !given.contains(name)).for_each(|name| names.forget(name));
        more.push(TableEntry::new(OPEN, line, unknown(line)));
    }
    match parameters.rest {
        Some(name) if !open && rest.iter().all(is_known) => {
            names.set(name, Node { value: NodeValue::List(rest), line });
        }
        Some(name) => names.forget(name),
        None if !rest.is_empty() => return None,
        None => {}
    }
    match parameters.more {
        Some(name) => names.set(name, Node { value: NodeValue::Map(more), line }),
        None if !more.is_empty() && !open => return None,
        None => {}
    }
    Some(())
}
