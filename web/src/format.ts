/** Figures as text. */

const LOCALE = "en-US";

export function whole(value: number): string {
    return Math.round(value).toLocaleString(LOCALE);
}

/** Three significant digits, as the command line prints them. */
export function significant(value: number): string {
    if (value === 0 || !Number.isFinite(value)) return String(value);
    const digits = Math.max(0, 2 - Math.floor(Math.log10(Math.abs(value))));
    return value.toLocaleString(LOCALE, { minimumFractionDigits: Math.min(digits, 6), maximumFractionDigits: Math.min(digits, 6) });
}

export function seconds(value: number): string {
    if (value >= 36_000) return `${significant(value / 3600)} h`;
    if (value >= 600) return `${significant(value / 60)} min`;
    if (value >= 1) return `${significant(value)} s`;
    if (value >= 1e-3) return `${significant(value * 1e3)} ms`;
    return value === 0 ? "0 s" : `${significant(value * 1e6)} µs`;
}

export function gib(value: number): string {
    return `${value.toFixed(1)} GiB`;
}

export function percent(share: number): string {
    const value = Math.abs(share) < 5e-4 ? 0 : share * 100;
    return `${value !== 0 && Math.abs(value) < 10 ? value.toFixed(1) : value.toFixed(0)} %`.replace("-", "−");
}

const SCALES: [number, string][] = [[1e15, "P"], [1e12, "T"], [1e9, "B"], [1e6, "M"], [1e3, "k"]];

export function energy(mwh: number): string {
    return mwh >= 1000 ? `${significant(mwh / 1000)} GWh` : `${significant(mwh)} MWh`;
}

export function count(value: number): string {
    const scale = SCALES.find(([size]) => value >= size);
    return scale === undefined ? whole(value) : `${significant(value / scale[0])} ${scale[1]}`;
}

export function dollars(value: number): string {
    return `$${count(value)}`;
}

/** Words of a key: `pipeline_bubble_s` is "pipeline bubble". */
export function words(key: string): string {
    return key.replace(/_(s|gib)$/, "").replaceAll("_", " ").replace(/^(tp|cp|pp|dp|ep) /, (name) => name.toUpperCase());
}
