/** Small parts that several views use. */

import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import * as Plot from "@observablehq/plot";

import { words } from "./format";

/** Copies a text; refused where the page has no right to, as on a host without TLS. */
export async function copy(text: string): Promise<void> {
    if (!("clipboard" in navigator)) throw new Error("no clipboard here");
    await navigator.clipboard.writeText(text);
}

/** Text with a button that copies it. */
export function Copyable({ text, label }: { text: string; label: string }) {
    const [done, setDone] = useState(false);
    const code = useRef<HTMLElement>(null);
    const press = () => {
        copy(text)
            .then(() => setDone(true))
            .catch(() => code.current && getSelection()?.selectAllChildren(code.current));
        setTimeout(() => setDone(false), 1500);
    };
    return (
        <div class="copyable">
            <code ref={code} tabIndex={0} aria-label={label}>{text}</code>
            <button type="button" onClick={press} aria-label={`Copy: ${label}`}>{done ? "Copied" : "Copy"}</button>
        </div>
    );
}

/** Width of an element, followed as it changes. */
export function useWidth<E extends HTMLElement>() {
    const element = useRef<E>(null);
    const [width, setWidth] = useState(0);
    useEffect(() => {
        if (element.current === null) return undefined;
        const watch = new ResizeObserver(([entry]) => entry && setWidth(Math.floor(entry.contentRect.width)));
        watch.observe(element.current);
        return () => watch.disconnect();
    }, []);
    return { element, width };
}

/** Figure drawn by Observable Plot at the width that there is, with its meaning in words. */
export function Figure({ label, draw, caption }: { label: string; draw(width: number): Plot.PlotOptions; caption?: ComponentChildren }) {
    const { element, width } = useWidth<HTMLDivElement>();
    useEffect(() => {
        const host = element.current;
        if (host === null || width < 40) return;
        const plot = Plot.plot({ marginBottom: 42, ...draw(width), width, className: "plot" });
        // The figure as a whole has a text; names of its marks would only repeat their kind.
        for (const mark of plot.querySelectorAll("[aria-label]")) mark.removeAttribute("aria-label");
        for (const svg of plot.tagName === "svg" ? [plot] : plot.querySelectorAll("svg")) {
            svg.setAttribute("role", "img");
            svg.setAttribute("aria-label", label);
        }
        host.replaceChildren(plot);
    });
    return (
        <figure class="figure">
            <div ref={element} class="host" />
            {caption && <figcaption>{caption}</figcaption>}
        </figure>
    );
}

/** Colours with names, which the text beside them repeats. */
export function Legend({ entries }: { entries: [string, string][] }) {
    return (
        <ul class="legend">
            {entries.map(([name, colour]) => <li key={name}><span class="swatch" style={{ background: colour }} aria-hidden="true" />{name}</li>)}
        </ul>
    );
}

/** Definitions of terms of the step time or the memory, by key; `docs/glossary.toml` has them. */
declare const GLOSSARY: Record<string, string>;

/** Terms with their definitions, folded. */
export function Definitions({ title, keys }: { title: string; keys: string[] }) {
    return (
        <details class="definitions">
            <summary>{title}</summary>
            <dl>{keys.map((key) => <div key={key}><dt>{words(key)}</dt><dd>{GLOSSARY[key]}</dd></div>)}</dl>
        </details>
    );
}

/** Saves a file that the page made. */
export function save(name: string, parts: BlobPart, type: string): void {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([parts], { type }));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

export function Waiting({ what }: { what: string }) {
    return <p class="waiting" role="status">{what}</p>;
}

export function Refusal({ text }: { text: string }) {
    const [why, ...hints] = text.split("\n\nhint: ");
    return (
        <div class="refusal" role="alert">
            <p>{why}</p>
            {hints.map((hint) => <p class="hint" key={hint}>{hint}</p>)}
        </div>
    );
}
