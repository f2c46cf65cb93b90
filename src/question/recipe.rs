//! Optimizer recipes by name or by bytes per parameter.

use super::error::QuestionError;
use meshwright_engine::suggest::nearest_hint;
use meshwright_engine::workload::{self, RECIPES, Recipe};

/// Most bytes of one state per parameter that a user may give; fp64 has 8.
const MOST_BYTES: f64 = 64.0;

/// Recipe from four byte counts, as `2+4+4+8`: weights, gradients, master weights, moments.
fn recipe_of_bytes(text: &str) -> Option<Recipe> {
    let parts: Vec<f64> = text.split('+').map(|part| part.trim().parse().ok()).collect::<Option<_>>()?;
    let [weight, gradient, master, state] = parts.try_into().ok()?;
    let recipe = Recipe { weight, gradient, master, state };
    let is_valid = |bytes: &f64| (0.0..=MOST_BYTES).contains(bytes);
    (weight > 0.0 && [weight, gradient, master, state].iter().all(is_valid)).then_some(recipe)
}

/// Recipe by name or by its byte counts; an error lists the names.
///
/// # Errors
///
/// No recipe has the name, and it is not four byte counts.
pub fn recipe(name: &str) -> Result<Recipe, QuestionError> {
    workload::recipe(name).or_else(|| recipe_of_bytes(name)).ok_or_else(|| {
        let names: Vec<&str> = RECIPES.iter().map(|known| known.name).collect();
        let nearest = nearest_hint(name, names.iter().copied());
        QuestionError::refused(format!(
            "there is no optimizer recipe `{name}`{nearest}\n\nhint: there are: {}; or bytes of weights, gradients, master \
             weights and moments: 2+4+4+8",
            names.join(", ")
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recipe_suggests_its_neighbour() {
        assert!(recipe("muon").is_ok());
        assert!((recipe("1+2+4+6").unwrap().total() - 13.0).abs() < 1e-9);
        assert!(recipe("1+2+4").is_err() && recipe("0+2+4+6").is_err() && recipe("inf+2+4+6").is_err());
        assert!(recipe("megatorn").unwrap_err().to_string().contains("did you mean `megatron`?"));
    }
}
