/** Answers of the page: which requests a question needs, in which order, and what is known of each. */

import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

import type { Bill, Changed, Explanation, Noted, Picture, PlanDocument, Priced } from "./documents";
import { Lane, Refused, Superseded, type Request } from "./engine";
import { planQuestion, problem, type Question } from "./question";

/** Quiet time after which the whole answer is worked out, with refined stages and host orders. */
const SETTLED_MS = 450;
/** Time after which the page says that it searches. */
const NOTICEABLE_MS = 150;

const search = new Lane({ patient: true, standby: true });
const details = new Lane({ patient: true });
const background = new Lane();
const changes = new Lane();

export interface Answered {
    question: Question;
    document: PlanDocument;
    notes: string[];
    /** Where no plan runs, a rejected plan of each rule: `rule: reason`. */
    examples: string[];
    /** Text of the document, once the whole answer is there. */
    text: string | null;
    tookMs: number;
}

export interface Answers {
    answered: Answered | null;
    error: string | null;
    busy: boolean;
}

/** Newest answer to a question: at first from the winners of the last, then the whole one. */
export function useAnswers(question: Question): Answers {
    const [state, setState] = useState<Answers>({ answered: null, error: null, busy: true });
    const winners = useRef<string[]>([]);
    // Before the next frame is drawn: an effect that waits for it would leave the engine idle for up to one.
    useLayoutEffect(() => {
        let current = true;
        const started = performance.now();
        const noticed = setTimeout(() => setState((before) => ({ ...before, busy: true })), NOTICEABLE_MS);
        let settle: ReturnType<typeof setTimeout> | undefined;
        const asked = planQuestion(question);
        background.giveUp();
        search
            .ask<Noted<Partial<PlanDocument>>>({ ask: "live", question: asked, winners: winners.current })
            .then(({ document: told, notes, examples }) => {
                if (!current) return;
                if (!isOfOneKind(told)) throw new Refused("pools of different GPUs: `meshwright plan` answers them; the page shows one kind of GPU");
                const plans = told.plans.map((plan) => plan.plan);
                const fastest = told.recommended?.fastest?.plan;
                winners.current = [...new Set([...(fastest ? [fastest] : []), ...plans, ...winners.current])].slice(0, 16);
                const answered = { question, document: told, notes, examples, text: null, tookMs: performance.now() - started };
                setState({ answered, error: null, busy: false });
                settle = setTimeout(() => {
                    background
                        .ask<Noted>({ ask: "plan", question: asked })
                        .then((whole) => {
                            if (!current) return;
                            const document = JSON.parse(whole.document) as PlanDocument;
                            setState({ answered: { ...answered, document, notes: whole.notes, text: whole.document }, error: null, busy: false });
                        })
                        .catch(() => undefined); // superseded, or refused as the first one would have been
                }, SETTLED_MS);
            })
            .catch((why: unknown) => {
                if (current && !(why instanceof Superseded)) setState((before) => ({ ...before, error: message(why), busy: false }));
            })
            .finally(() => clearTimeout(noticed));
        return () => {
            current = false;
            clearTimeout(noticed);
            clearTimeout(settle);
        };
    }, [question]);
    return state;
}

/** Whether an answer is on one kind of GPU: over pools it has another form. */
function isOfOneKind(told: Partial<PlanDocument>): told is PlanDocument {
    return told.problem !== undefined && told.plans !== undefined;
}

function message(why: unknown): string {
    return why instanceof Error ? why.message : String(why);
}

export interface Drawn {
    picture: Picture;
    question: Question;
    plan: string;
}

const drawn = new Map<string, Promise<Picture>>();

/** Picture of a plan; the last few are kept. */
export function picture(question: Question, plan: string): Promise<Picture> {
    const request = { ask: "picture", problem: problem(question), plan };
    const key = JSON.stringify(request);
    const known = drawn.get(key);
    if (known !== undefined) return known;
    const asked = queue(() => details.ask<Picture>(request));
    drawn.set(key, asked);
    asked.catch(() => drawn.delete(key));
    for (const old of [...drawn.keys()].slice(0, -12)) drawn.delete(old);
    return asked;
}

/** Terms and memory of a plan by rank, without a drawing. */
export function explanation(question: Question, plan: string): Promise<Explanation> {
    return queue(() => details.ask<string>({ ask: "explain", problem: problem(question), plan })).then((text) => JSON.parse(text) as Explanation);
}

/** Requests one after another, so that none of several views loses its own. */
let last: Promise<unknown> = Promise.resolve();
export function queue<T>(ask: () => Promise<T>): Promise<T> {
    const mine = last.catch(() => undefined).then(ask);
    last = mine;
    return mine;
}

/** Picture of a plan for a view, with the one before while it is drawn. */
export function usePicture(question: Question, plan: string | undefined): { drawn: Drawn | null; error: string | null } {
    const [state, setState] = useState<{ drawn: Drawn | null; error: string | null }>({ drawn: null, error: null });
    useEffect(() => {
        if (plan === undefined) return undefined;
        let current = true;
        picture(question, plan)
            .then((told) => current && setState({ drawn: { picture: told, question, plan }, error: null }))
            .catch((why: unknown) => current && !(why instanceof Superseded) && setState({ drawn: null, error: message(why) }));
        return () => {
            current = false;
        };
    }, [question, plan]);
    return state;
}

/** Any other request, in its turn. */
export function ask<T>(request: Request): Promise<T> {
    return queue(() => details.ask<T>(request));
}

export interface Sensitivity { optimum: Priced; changes: Changed[] }

/** Effect of each change on the optimum; in the background, since it solves dozens of problems. */
export function sensitivity(question: Question): Promise<Sensitivity> {
    return changes.ask<Noted>({ ask: "plan", question: planQuestion(question, true) }).then(({ document }) => {
        const told = JSON.parse(document) as PlanDocument;
        if (told.sensitivity === undefined || told.sensitivity_of === undefined) throw new Refused("no plan runs, so that nothing can change it");
        return { optimum: told.sensitivity_of, changes: told.sensitivity };
    });
}

export interface Sized { gpus: number; plan: Priced | null; bill: Bill | null }

/** Recommended plans of a question on other numbers of GPUs, told one by one until it is ended; each starts from the winners before. */
export function sized(question: Question, sizes: number[], told: (found: Sized) => void, failed: (why: string) => void): () => void {
    let current = true;
    const run = async () => {
        let winners: string[] = [];
        for (const gpus of sizes) {
            const { document } = await changes.ask<Noted<PlanDocument>>({ ask: "live", question: planQuestion({ ...question, gpus }), winners });
            if (!current) return;
            const { plans, recommended, bills } = document;
            const at = (recommended?.rank ?? 1) - 1;
            winners = [...new Set([...plans.map((plan) => plan.plan), ...winners])].slice(0, 16);
            told({ gpus, plan: plans[at] ?? null, bill: bills?.[at] ?? null });
        }
    };
    run().catch((why: unknown) => current && !(why instanceof Superseded) && failed(message(why)));
    return () => {
        current = false;
        changes.giveUp();
    };
}
