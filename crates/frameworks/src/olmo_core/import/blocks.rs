//! Mixer of a block: attention, or a recurrent layer.
//!
//! Source: [olmo-core] `nn/attention/__init__.py`, `nn/attention/recurrent.py`, `nn/rope.py`, release 2.5.0: names,
//! defaults and shapes.

use super::factories::PARTLY;
use super::reader::{Parts, Reader, member};
use crate::readers::document::CALLED;
use meshwright_engine::model::{Attention, DeltaNet, Mixer, OutputGate, QkNorm, RopeScaling, RopeScalingKind, Span};

impl Reader<'_> {
    /// Attention or its recurrent relative, and parameters that no field of it has.
    pub fn mixer(&self, path: &str, at: u32, layers: u32, hidden: u32, parts: &mut Parts) -> Option<(Mixer, u64)> {
        let class = self.document.word(&format!("{path}.{CALLED}"));
        match class.as_deref().map(member) {
            Some("AttentionConfig") => Some((self.attention(path, at, layers, hidden, parts)?, 0)),
            Some("GatedDeltaNetConfig") => self.recurrent(path, hidden),
            Some(other) => {
                self.refuse(path, &format!("is `{other}`, which is not read"));
                None
            }
            None => {
                self.refuse(path, "is not read");
                None
            }
        }
    }

    fn attention(&self, path: &str, at: u32, layers: u32, hidden: u32, parts: &mut Parts) -> Option<Mixer> {
        let document = self.document;
        let below = |key: &str| format!("{path}.{key}");
        if self.kind(&below("name"), "default") == "normalized" {
            self.refuse(&below("name"), "is nGPT's, which is not read");
            return None;
        }
        let heads = document.size(&below("n_heads")).unwrap_or(16);
        let kv_heads = document.size(&below("n_kv_heads")).unwrap_or(heads);
        let head_dim = document.size(&below("head_dim")).unwrap_or((hidden / heads).max(1));
        let bias = self.on(&below("bias"), true);
        let span = self.span(&below("sliding_window"), at, layers)?;
        let qk_norm = match (self.is_object(&below("qk_norm")), self.on(&below("use_head_qk_norm"), false)) {
            (false, _) => QkNorm::None,
            (true, true) => QkNorm::PerHead,
            (true, false) => QkNorm::Full,
        };
        let output_gate = match self.is_object(&below("gate")) {
            false => OutputGate::None,
            true if self.kind(&below("gate.granularity"), "headwise") == "elementwise" => OutputGate::PerElement,
            true => OutputGate::PerHead,
        };
        let rope =
            self.is_object(&below("rope")) && (span != Span::Full || !self.on(&below("rope.no_global_rope"), false));
        if rope {
            self.rotary(&below("rope"), span != Span::Full, parts);
        }
        if let Some(limit) = document.real(&below("clip_qkv")) {
            parts.other("clip_qkv", limit);
        }
        parts.dropout |= document.real(&below("dropout")).is_some_and(|share| share > 0.0);
        let attention = Attention {
            span,
            qkv_bias: bias,
            out_bias: bias,
            qk_norm,
            output_gate,
            rope,
            ..Attention::plain(heads, kv_heads, head_dim)
        };
        Some(Mixer::Attention(attention))
    }

    /// Keys that a layer sees; none where its windows are not read.
    fn span(&self, path: &str, at: u32, layers: u32) -> Option<Span> {
        let document = self.document;
        if !self.is_object(path) {
            return Some(Span::Full);
        }
        let pattern = document.words(&format!("{path}.pattern"));
        let first = self.on(&format!("{path}.force_full_attention_on_first_layer"), true);
        let last = self.on(&format!("{path}.force_full_attention_on_last_layer"), true);
        if pattern.is_empty() {
            self.refuse(&format!("{path}.pattern"), "is not read");
            return None;
        }
        if (first && at == 0) || (last && at + 1 == layers) {
            return Some(Span::Full);
        }
        let place = (at - u32::from(first)) as usize % pattern.len();
        match pattern[place].as_str() {
            "-1" => Some(Span::Full),
            width => {
                let width = width.parse().ok().filter(|width| *width > 0);
                if width.is_none() {
                    document.wrong(&format!("{path}.pattern"), &pattern[place], "-1, or a number of keys");
                }
                width.map(Span::Window)
            }
        }
    }

    fn rotary(&self, path: &str, windowed: bool, parts: &mut Parts) {
        let document = self.document;
        let theta = document.real(&format!("{path}.theta")).unwrap_or(500_000.0);
        let details = &mut parts.details;
        match details.rope_theta {
            None => details.rope_theta = Some(theta),
            Some(known) if (known - theta).abs() > 0.0 => {
                // The base of layers with a window is the local one.
                let (whole, local) = if windowed { (known, theta) } else { (theta, known) };
                (details.rope_theta, details.rope_local_theta) = (Some(whole), Some(local));
            }
            Some(_) => {}
        }
        let share = document.real(&format!("{path}.partial_rotary_factor"));
        details.rotary_share = details.rotary_share.or(share.filter(|share| *share < 1.0));
        let path = format!("{path}.scaling");
        let real = |key: &str, usual: f64| document.real(&format!("{path}.{key}")).unwrap_or(usual);
        let class = document.word(&format!("{path}.{CALLED}"));
        let kind = match class.as_deref().map(member) {
            Some("PIRoPEScalingConfig") => Some((RopeScalingKind::Linear, 2.0)),
            Some("StepwiseRoPEScalingConfig") => {
                let low = 1.0 / (1.0 - real("low_freq_proportion", 0.0));
                let high = 1.0 / real("high_freq_proportion", 0.25);
                Some((RopeScalingKind::Llama3 { low, high }, 32.0))
            }
            Some("YaRNRoPEScalingConfig") => {
                let (beta_fast, beta_slow) = (real("beta_fast", 32.0), real("beta_slow", 1.0));
                let kind =
                    RopeScalingKind::Yarn { beta_fast, beta_slow, mscale: None, mscale_all_dim: None, truncate: true };
                Some((kind, 8.0))
            }
            Some("ABFRoPEScalingConfig") => {
                details.rope_theta = Some(real("new_theta", 8_000_000.0));
                None
            }
            Some(other) => Some((RopeScalingKind::Other(other.to_owned()), 1.0)),
            None => None,
        };
        let Some((kind, usual)) = kind else { return };
        let factor = real("factor", usual);
        let linear = kind == RopeScalingKind::Linear;
        let original_positions = (!linear).then(|| document.size(&format!("{path}.old_context_len")).unwrap_or(8192));
        if document.word(&format!("{}.scaled_layers", path.trim_end_matches(".scaling"))).as_deref() == Some(PARTLY) {
            parts.other("rope_scaling.factor of layers without a window", factor);
        } else {
            details.rope_scaling = Some(RopeScaling { kind, factor, original_positions });
        }
    }

    /// `GatedDeltaNet`: heads of keys and of values, whose dimension is a multiple of the keys'.
    fn recurrent(&self, path: &str, hidden: u32) -> Option<(Mixer, u64)> {
        let document = self.document;
        let below = |key: &str| format!("{path}.{key}");
        let heads = document.size(&below("n_heads")).unwrap_or(16);
        let value_heads = document.size(&below("n_v_heads")).unwrap_or(heads);
        let head_dim = document.size(&below("head_dim"));
        let expand = document.real(&below("expand_v")).unwrap_or(2.0);
        let key_dim = head_dim.unwrap_or(hidden / heads);
        let value_dim = (f64::from(key_dim) * expand) as u32;
        let conv_kernel = document.size(&below("conv_size")).unwrap_or(4);
        if value_dim == 0 || key_dim == 0 {
            document.wrong(&below("head_dim"), &key_dim.to_string(), "a dimension above 0");
            return None;
        }
        let keys = u64::from(heads) * u64::from(key_dim);
        let values = u64::from(value_heads) * u64::from(value_dim);
        let extra = if self.on(&below("conv_bias"), false) { 2 * keys + values } else { 0 };
        Some((Mixer::DeltaNet(DeltaNet { key_heads: heads, value_heads, key_dim, value_dim, conv_kernel }), extra))
    }
}
