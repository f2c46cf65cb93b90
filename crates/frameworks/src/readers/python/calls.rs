//! Tests of arguments that go through tables: `**given`, `dict`, `update`, `pop`, `get`.

use super::parse;
use crate::import::Severity;
use crate::import::context::Context;
use crate::readers::document::{CALLED, Document};

fn read(text: &str) -> Document {
    parse(text, None, &Context::alone("f.py")).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// Lines with an error.
fn errors(document: &Document) -> Vec<u32> {
    let findings = document.findings.borrow();
    let of_line = |at: &crate::import::Finding| Some(at.place.as_ref()?.line);
    findings.iter().filter(|finding| finding.level == Severity::Error).filter_map(of_line).collect()
}

#[test]
fn keyword_arguments_are_handed_on() {
    let document = read(
        "
def lora(scheme: str | PEFT | None, **kwargs: Any) -> PEFT | None:
    if isinstance(scheme, PEFT):
        return scheme
    if isinstance(scheme, str):
        if scheme.lower() == 'lora':
            return LoRA(**kwargs)
    raise ValueError

def common(tp: int = 1, *, batch: int = 8, layers=None, **more) -> dict:
    cfg = Container(peft=lora('LoRA', dim=more['dim'], alpha=32))
    cfg.model.tensor_model_parallel_size = tp
    cfg.train.global_batch_size = batch
    cfg.model.num_layers = layers
    return cfg

def config(**given) -> Config:
    recommended = dict(tp=2, batch=16, dim=4)
    recommended.update({'layers': 8}, batch=32)
    combined: dict = {**recommended, 'dim': 16, **given}
    layers = combined.pop('layers')
    size = combined.get('micro', 3)
    cfg = common(layers=layers * 2, **combined)
    cfg.train.micro_batch_size = size
    return cfg
",
    );
    assert!(document.findings.borrow().is_empty(), "{:?}", document.findings);
    let numbers =
        ["model.tensor_model_parallel_size", "train.global_batch_size", "model.num_layers", "train.micro_batch_size"];
    assert_eq!(numbers.map(|path| document.number(path)), [Some(2), Some(32), Some(16), Some(3)]);
    assert_eq!((document.number("peft.dim"), document.number("peft.alpha")), (Some(16), Some(32)));
    assert_eq!(document.word(&format!("peft.{CALLED}")).as_deref(), Some("LoRA"));
}

#[test]
fn no_default_stands_for_an_argument_that_is_not_known() {
    // Each body sets the batch by an argument that only the program knows; its default, 8, must not be taken.
    for (body, line) in [
        ("cfg = made(batch=unknown()[0])", 3),
        ("cfg = made(**unknown()[0])", 3),
        ("cfg = made(*unknown()[0])", 3),
        ("cfg = made(**{'batch': unknown()[0]})", 3),
        ("cfg = made(**{**unknown()[0]})", 3),
        ("cfg = made(**{'batch': 4, **vars(other)})", 3),
        ("cfg = made(**{unknown()[0]: 4})", 3),
        ("cfg = made(**({'batch': 4} | unknown()[0]))", 3),
        ("d = {}; d[unknown()[0]] = 4; cfg = made(**d)", 3),
        ("d = {}; d.update(unknown()[0]); cfg = made(**d)", 3),
        ("d = {}; d['batch'] = unknown()[0]; cfg = made(**d)", 3),
        ("d = {}; d.setdefault('batch', 4); cfg = made(**d)", 3),
        ("d = {}; e = d; e.setdefault('batch', 4); cfg = made(**d)", 3),
        ("d = {'batch': unknown()[0]}; cfg = made(); cfg.train.global_batch_size = d.get('batch', 8)", 7),
        ("d = {**unknown()[0]}; cfg = made(); cfg.train.global_batch_size = d.get('batch', 8)", 7),
        ("d = {**unknown()[0]}; cfg = made(); cfg.train.global_batch_size = 4 if 'batch' in d else 8", 7),
        ("d = {**unknown()[0]}; cfg = made(); cfg.train.global_batch_size = 4 if d else 8", 7),
        ("cfg = made(); setattr(cfg.train, 'global_batch_size', unknown()[0])", 7),
        ("cfg = made(); name = unknown()[0]; setattr(cfg.train, name, 4)", 7),
        ("cfg = made(); cfg.train = Train(**unknown()[0])", 7),
    ] {
        let text = format!(
            "def made(batch=8):\n    cfg = C()\n    cfg.train.global_batch_size = batch\n    return cfg\n\ndef \
            config() -> Config:\n    {body}\n    return cfg\n"
        );
        let document = read(&text);
        assert!(errors(&document).contains(&line), "{body}: {:?}", document.findings);
        let batch = document.peek("train.global_batch_size");
        assert!(batch.is_none() || line == 7, "{body}: {batch:?}");
    }
}

#[test]
fn entries_are_taken_out_where_the_statement_does() {
    for (body, batch) in [
        ("x = d.pop('batch', 1); cfg = C(batch=d.get('batch', 2), x=x)", 2),
        ("d.pop('batch'); cfg = C(batch=d.get('batch', 3))", 3),
        ("del d['batch']; cfg = C(batch=d.get('batch', 5))", 5),
        ("d.clear(); cfg = C(batch=d.get('batch', 6))", 6),
        ("e = d; e['batch'] = 7; cfg = C(**d)", 7),
        ("e = d; d = {'batch': 1}; e['batch'] = 9; cfg = C(batch=d['batch'])", 1),
        ("e = dict(d, batch=10); cfg = C(**e)", 10),
        ("e = {'batch': 1} | d | {'batch': 16}; cfg = C(**e)", 16),
        ("d |= {'batch': 17}; cfg = C(**d)", 17),
        (
            "cfg = C(part=P(batch=1)); part = cfg.part; cfg.part = P(batch=11); part.batch = 2; cfg.batch = cfg.part.batch",
            11,
        ),
        ("key = 'batch'; d[key] = 12; cfg = C(**d)", 12),
        ("cfg = C(); setattr(cfg, 'batch', 13)", 13),
        ("sizes = [1, 2]; sizes.append(14); cfg = C(batch=sizes[2])", 14),
        ("sizes = [1, 2]; sizes[1] = 15; cfg = C(batch=sizes[1])", 15),
    ] {
        let text = format!("def config() -> Config:\n    d = dict(batch=4)\n    {body}\n    return cfg\n");
        let document = read(&text);
        assert_eq!((document.number("batch"), errors(&document)), (Some(batch), Vec::new()), "{body}");
    }
}

#[test]
fn what_python_refuses_is_not_read() {
    for call in ["made(1, 2)", "made(size=1)", "made(1, b=2, c=3)"] {
        let text = format!(
            "def made(a=1, b=2) -> Config:\n    return C(batch_size=a)\n\ndef config() -> Config:\n    return {call}\n"
        );
        let of = parse(&text, Some("config"), &Context::alone("f.py")).map(|document| document.number("batch_size"));
        assert_eq!(of.ok().flatten(), (call == "made(1, 2)").then_some(1), "{call}");
    }
}
