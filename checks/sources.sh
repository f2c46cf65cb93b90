# Sources of frameworks that are no packages, for the environment in $home; sourced by run.sh and train.sh.
#
# GPT-NeoX is no package, and ms-swift's and llm-foundry's ask for more than their arguments: their sources are asked, from $GPT_NEOX,
# $MS_SWIFT, $LLM_FOUNDRY, $COMPOSER and $MEGABLOCKS (checkouts) or from where they are kept. OLMo-core's asks for Beaker's client and others: its
# source, from $OLMO_CORE, runs with two packages beside the others. Primus is no package: $PRIMUS, and the Megatron-LM of its third_party,
# $PRIMUS_MEGATRON.
fetched() { # owner, name, revision -> the folder
    local folder=$home/$2-$3
    if [ ! -d "$folder" ]; then
        mkdir -p "$home/fetched"
        if curl -sfL --max-time 120 "https://codeload.github.com/$1/$2/tar.gz/$3" | tar xz -C "$home/fetched" 2> /dev/null; then
            mv "$home/fetched/$2-$3" "$home/"
        fi
    fi
    echo "$folder"
}
neox=${GPT_NEOX:-$(fetched EleutherAI gpt-neox ea7aefd8f8e183256992d9fede4d7c71a46d67a5)}
foundry=${LLM_FOUNDRY:-$(fetched mosaicml llm-foundry 8c8dd48f72168c5d51e2f7b151595892a8fba43d)}
composer=${COMPOSER:-$(fetched mosaicml composer 4bfb5fc44b8bbde26b035a43b9311003013a4252)}
megablocks=${MEGABLOCKS:-$(fetched databricks megablocks 78eea65fda01e638af36ae38853bc51efb04a4b4)}
olmo=${OLMO_CORE:-$(fetched allenai OLMo-core fa6c5014c9f6e9ee789da2d9c20d5126fee8df0d)}
olmo_needs=$home/olmo-core-needs
if [ -d "$olmo" ] && [ ! -d "$olmo_needs" ]; then
    "$home/bin/uv" pip install -q --no-deps --python "$home/bin/python" --target "$olmo_needs" dataclass-extensions==0.5.0 torchao==0.15.0 2> /dev/null || rm -rf "$olmo_needs"
fi
swift=${MS_SWIFT:-$(fetched modelscope ms-swift 3602360a562313afbf2ef6065fdf61f271a2c5b9)}
primus=${PRIMUS:-$(fetched AMD-AGI Primus fd1eeabbad15135e3702094087e96142b4b4eacb)}
primus_megatron=${PRIMUS_MEGATRON:-$(fetched NVIDIA Megatron-LM d3528a21301db2d12e92912b3ec025dc8a2ed4d6)} # that of its third_party
