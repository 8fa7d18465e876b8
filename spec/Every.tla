-------------------------------- MODULE Every -------------------------------
(* SPDX-FileCopyrightText: The Tenure Authors                               *)
(* SPDX-License-Identifier: Apache-2.0                                      *)
(*                                                                          *)
(* Every of package once: machines of which one leads and begins periods, a *)
(* ledger of how many were begun and how old the last one is at least, and  *)
(* clocks that run wrong. README.md explains it to those who do not read    *)
(* TLA+.                                                                    *)
EXTENDS Integers, TLC

CONSTANTS
    Machines,   \* processes that call Every
    Period,     \* P, by a local clock
    Tick,       \* how much real time passes at once,
    Fast,       \* what the fastest clock shows for it,
    Slow,       \* and the slowest
    CatchUp,    \* k
    MaxToken,
    MaxN,       \* the last period of a ledger
    MaxLedgers, \* how many ledgers there may be, one after the other
    Uses,       \* what else happens: "crash", "delete", ...
    Wrong

VARIABLES
    store,      \* the lock's record, with the ledger
    net,
    mach,
    past        \* what has happened; nobody reads it

vars == <<store, net, mach, past>>

-----------------------------------------------------------------------------
(* Time. The fastest clock shows Fast for a Tick of real time: the rate error *)
(* is rho = Fast/Tick - 1. So P/(1+rho) is:                                  *)

Least == (Period * Tick) \div Fast

Max(a, b) == IF a > b THEN a ELSE b
Min(a, b) == IF a < b THEN a ELSE b

\* No age matters beyond this: what is over is carried over up to k periods.
Old == (CatchUp + 1) * Period
Aged(age, d) == Min(age + d, Old)

-----------------------------------------------------------------------------
(* The ledger: which one, how many periods were begun, and the age of the    *)
(* last one, at least. What a machine knows has the same form, with the age  *)
(* of now by its clock. An id of 0 is no ledger.                             *)

None == [id |-> 0, n |-> 0, age |-> 0]
Same(l, s) == l.n = s.n /\ (l.id = s.id \/ "any ledger" \in Wrong)

\* What says more of the period of l: since.older. And what it keeps: since.newer.
Older(l, s) ==
    IF (Same(l, s) \/ ("any period" \in Wrong /\ l.id = s.id)) /\ s.age > l.age
    THEN [l EXCEPT !.age = s.age] ELSE l
Newer(l, s) == IF l.id = s.id /\ s.n > l.n THEN s ELSE l

Carried(age) == Min(age - Period, CatchUp * Period)

-----------------------------------------------------------------------------
(* The lock is that of Tenure.tla, with what was shown there taken for       *)
(* granted, as in Once.tla.                                                  *)
(*   wait   campaigns, and watches the ledger                                *)
(*   lead   leads, and writes what it knows                                  *)
(*   claim  begins the next period                                           *)
(*   leave  releases the lock                                                *)
(* good says that Check passes, got that a write has got the lock, yes that  *)
(* the claim was carried out. seen is what it knows, led the ledger that it  *)
(* is to write. asked is for how long a request has been under way, for the  *)
(* mistakes that count from there; Never without one.                        *)

Never == -1
Idle == [at |-> "wait", tok |-> 0, good |-> FALSE, got |-> FALSE, yes |-> FALSE, led |-> None, seen |-> None, asked |-> Never]

Mine(p) == store.st = "held" /\ store.tok = mach[p].tok
Standing == \E p \in Machines : mach[p].good /\ mach[p].tok = store.tok

Turns(p, m) == mach' = [mach EXCEPT ![p] = m]
Still == UNCHANGED <<store, past>>

Takes(w) == w.k \in {"claim", "take"}

\* What it knows stays.
Left(m) == [Idle EXCEPT !.seen = m.seen]
Orphaned(p, ws) == {IF w.by = p /\ Takes(w) THEN [w EXCEPT !.me = FALSE, !.by = "nobody"] ELSE w : w \in ws}

-----------------------------------------------------------------------------
(* The store.                                                                *)

Write(k, p, l) == [k |-> k, by |-> p, me |-> FALSE, tok |-> mach[p].tok, led |-> l]

Sends(w) == net' = net \cup {w}

Fits(w) == IF w.k = "claim" THEN store.st # "held" ELSE store.st = "held"

Written(w) ==
    CASE Takes(w) -> [st |-> "held", tok |-> store.tok + 1,
                      led |-> IF "claim with data" \in Wrong /\ w.led.id # 0 THEN w.led ELSE store.led]
      [] w.k \in {"age", "begin"} -> [store EXCEPT !.led = w.led]
      [] w.k = "free" -> [store EXCEPT !.st = "released", !.led = w.led]

\* A write begins a period if the store had another number. The bucket fills by
\* P/(1+rho) with each period, and runs out with time: see Spaced.
Begins(w) == ~Takes(w) /\ w.led.n # store.led.n /\ w.led.n > 0
Claims == {u \in net : u.k = "claim"}
Lands(w) ==
    /\ Fits(w) /\ Written(w).tok <= MaxToken
    /\ store' = Written(w)
    /\ past' = IF ~Begins(w) THEN past
               ELSE [past EXCEPT !.fill = @ + Least, !.since = 0, !.begun = @ \cup {<<w.led.id, w.led.n>>}]
Apply(w) ==
    LET m == mach[w.by] IN
    /\ w \in net /\ Lands(w)
    /\ net' = IF w.me THEN Orphaned(w.by, Claims) ELSE Claims
    /\ IF Takes(w) /\ w.me
       THEN Turns(w.by, [m EXCEPT !.got = TRUE, !.good = TRUE, !.tok = store'.tok])
       ELSE IF w.k = "begin" /\ w.tok = m.tok /\ m.at = "claim" THEN Turns(w.by, [m EXCEPT !.yes = TRUE])
       ELSE UNCHANGED mach

\* An operator deletes the record, whoever holds it.
Delete ==
    /\ "delete" \in Uses /\ store.st # "absent"
    /\ store' = [store EXCEPT !.st = "absent", !.led = None]  \* its token goes on: it is but a name here
    /\ net' = {w \in net : w.k = "claim"}
    /\ UNCHANGED <<mach, past>>

-----------------------------------------------------------------------------
(* Machines.                                                                 *)

Ids == {store.led.id} \cup {w.led.id : w \in net} \cup {mach[p].led.id : p \in Machines}
       \cup {mach[p].seen.id : p \in Machines} \cup {b[1] : b \in past.begun}
Fresh == 1 + (CHOOSE i \in Ids : \A j \in Ids : j <= i)

Acquire(p) ==
    LET m == mach[p]
        data == IF "claim with data" \in Wrong THEN m.seen ELSE None
        send(k, l) == Sends([Write(k, p, l) EXCEPT !.me = TRUE, !.tok = 0]) IN
    /\ m.at = "wait" /\ ~m.got
    /\ \/ store.st # "held" /\ ~(\E w \in net : w.k = "claim" /\ w.me /\ w.by = p) /\ send("claim", data)
       \/ store.st = "held" /\ ~Standing /\ send("take", None)
    /\ UNCHANGED mach /\ Still

\* A machine that waits reads the ledger, and counts from when it has the answer. A look takes
\* no time: an answer that is late is one that is read late.
Noted(m, l) == [m EXCEPT !.seen = Newer(Older(l, @), @)]
Early == "before the read" \in Wrong
Watch(p) ==
    LET m == mach[p]
        l == IF Early THEN [store.led EXCEPT !.age = Aged(@, m.asked)] ELSE store.led IN
    /\ m.at = "wait" /\ store.led.id # 0
    /\ Early => m.asked # Never
    /\ Noted(m, l).seen # m.seen
    /\ Turns(p, [Noted(m, l) EXCEPT !.asked = Never])
    /\ UNCHANGED net /\ Still
Ask(p) ==
    /\ Early /\ mach[p].at = "wait" /\ mach[p].asked = Never
    /\ Turns(p, [mach[p] EXCEPT !.asked = 0])
    /\ UNCHANGED net /\ Still

\* The lock is granted. An empty ledger is begun.
Grant(p) ==
    LET m == mach[p]
        l == IF store.led.id # 0 THEN store.led
             ELSE [id |-> Fresh, n |-> 0, age |-> IF "old from the beginning" \in Wrong THEN Period ELSE 0]
        s == Older(l, m.seen) IN
    /\ m.at = "wait" /\ m.got /\ m.good
    /\ l.id <= MaxLedgers
    /\ Turns(p, [m EXCEPT !.at = "lead", !.seen = s, !.asked = Never])
    /\ UNCHANGED net /\ Still

\* With heartbeats the leader writes the age of now. Such a write takes no time, or is
\* lost: one that comes late says less than it could.
Beat(p) ==
    LET m == mach[p] IN
    /\ m.at = "lead" /\ m.good /\ Mine(p)
    /\ m.seen # store.led
    /\ Lands(Write("age", p, m.seen)) /\ net' = Claims
    /\ UNCHANGED mach

\* A period has passed, and Check passes: one write begins the next one.
Apart == "two writes" \in Wrong
Begin(p) ==
    LET m == mach[p] IN
    /\ m.at = "lead" /\ m.good /\ m.seen.age >= Period /\ m.seen.n < MaxN
    /\ Turns(p, [m EXCEPT !.at = "claim", !.yes = FALSE,
                          !.led = [m.seen EXCEPT !.n = @ + 1, !.age = IF Apart THEN @ ELSE Carried(@)]])
    /\ UNCHANGED net /\ Still
Claim(p) ==
    LET m == mach[p] IN
    /\ m.at = "claim" /\ ~m.yes /\ Mine(p)
    /\ Sends(Write("begin", p, m.led))
    /\ IF "from the send" \in Wrong /\ m.asked = Never THEN Turns(p, [m EXCEPT !.asked = 0]) ELSE UNCHANGED mach
    /\ Still

\* The answer has come. From here on its holder counts. Check passes: the work runs.
Counted(m) == [m.led EXCEPT !.age = IF Apart THEN 0 ELSE IF m.asked # Never THEN Aged(@, m.asked) ELSE @]
Run(p) ==
    LET m == mach[p] IN
    /\ m.at = "claim" /\ m.good
    /\ m.yes \/ "unconfirmed" \in Wrong
    /\ Turns(p, [m EXCEPT !.at = "lead", !.yes = FALSE, !.seen = Counted(m), !.led = None, !.asked = Never])
    /\ past' = [past EXCEPT !.ran = @ \cup {<<m.led.id, m.led.n, m.tok>>},
                            !.twice = @ \/ \E r \in past.ran : r[1] = m.led.id /\ r[2] = m.led.n]
    /\ UNCHANGED <<store, net>>

\* No answer, or no time left. The work is not run, and the claim not taken back: the
\* lock is released with it, and with no age more than it began with, for it may be
\* this write that begins the period.
Stop(p) ==
    LET m == mach[p]
        aged == m.yes \/ "ages what is not confirmed" \in Wrong IN
    /\ m.at = "claim"
    /\ Turns(p, IF ~m.good THEN Left(m)
                ELSE IF aged THEN [m EXCEPT !.at = "lead", !.yes = FALSE, !.seen = m.led, !.led = None, !.asked = Never]
                ELSE [m EXCEPT !.at = "leave", !.yes = FALSE, !.asked = Never])
    /\ net' = IF m.good THEN net ELSE Orphaned(p, net)
    /\ Still

\* It ends in order: the release has the age of now. It takes no time, or is lost.
Leave(p) ==
    LET m == mach[p] IN
    /\ m.at = "lead" /\ m.good
    /\ Turns(p, [m EXCEPT !.at = "leave", !.led = m.seen])
    /\ UNCHANGED net /\ Still
Release(p) ==
    /\ mach[p].at = "leave" /\ Mine(p)
    /\ Lands(Write("free", p, mach[p].led)) /\ net' = Claims
    /\ Turns(p, Left(mach[p]))
End(p) ==
    /\ mach[p].at = "leave"
    /\ Turns(p, Left(mach[p])) /\ net' = Orphaned(p, net) /\ Still

\* The lease is over. An acquire goes on, a leader campaigns again.
Expire(p) ==
    LET m == mach[p] IN
    /\ m.good
    /\ Turns(p, IF m.at \in {"claim", "leave"} THEN [m EXCEPT !.good = FALSE] ELSE Left(m))
    /\ net' = IF m.at = "lead" THEN Orphaned(p, net) ELSE net
    /\ Still

Crash(p) ==
    /\ "crash" \in Uses /\ mach[p] # Idle
    /\ Turns(p, Idle) /\ net' = Orphaned(p, net) /\ Still

\* The clock by which a holder counts its lease is set forward.
Jump(p) ==
    /\ "the holder's clock" \in Wrong
    /\ Turns(p, [mach[p] EXCEPT !.seen.age = IF mach[p].seen.id = 0 THEN @ ELSE Aged(@, Fast)])
    /\ UNCHANGED net /\ Still

Later(m, d) ==
    [m EXCEPT !.seen.age = IF m.seen.id = 0 THEN @ ELSE Aged(@, d),
              !.asked = IF @ = Never THEN @ ELSE Aged(@, d)]
Pass ==
    /\ \E d \in [Machines -> {Fast, Slow}] : mach' = [p \in Machines |-> Later(mach[p], d[p])]
    /\ past' = [past EXCEPT !.fill = Max(0, @ - Tick), !.since = Min(@ + Tick, (Old * Tick) \div Fast + Tick)]
    /\ UNCHANGED <<store, net>>

-----------------------------------------------------------------------------
Init ==
    /\ store = [st |-> "absent", tok |-> 0, led |-> None]
    /\ net = {}
    /\ mach = [p \in Machines |-> Idle]
    /\ past = [fill |-> 0, since |-> 0, begun |-> {}, ran |-> {}, twice |-> FALSE]

Next ==
    \/ Pass
    \/ \E w \in net : Apply(w)
    \/ Delete
    \/ \E p \in Machines :
        \/ Acquire(p) \/ Ask(p) \/ Watch(p) \/ Grant(p) \/ Beat(p) \/ Begin(p) \/ Claim(p) \/ Run(p)
        \/ Stop(p) \/ Leave(p) \/ Release(p) \/ End(p) \/ Expire(p) \/ Crash(p) \/ Jump(p)

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
(* What must hold. README.md says each in words.                             *)

\* In any real time T at most T*(1+rho)/P + k + 1 periods begin; with k = 0 any two
\* are P/(1+rho) apart. For if the bucket is never fuller than k+1 times P/(1+rho),
\* then of j periods since one of them, j-k at least have had their time.
Spaced == past.fill <= (CatchUp + 1) * Least

AgeTrue ==
    LET most(l) == l.age * Tick <= past.since * Fast IN
    CatchUp = 0 =>
        /\ store.led.n > 0 => most(store.led)
        /\ \A p \in Machines : mach[p].seen.id = store.led.id /\ mach[p].seen.n = store.led.n /\ store.led.n > 0 => most(mach[p].seen)

RunsOnce == ~past.twice /\ \A r \in past.ran : <<r[1], r[2]>> \in past.begun

NumberRises ==
    [][store'.led.id = store.led.id => store'.led.n \in {store.led.n, store.led.n + 1}]_vars

-----------------------------------------------------------------------------
(* What must be reached, or what holds says little: each of these must be    *)
(* refuted, by a configuration that says it in words.                        *)

NeverSecond == ~\E r, t \in past.ran : r[1] = t[1] /\ r[2] + 1 = t[2] /\ r[3] # t[3]

NeverTight ==
    [][past'.begun # past.begun /\ past.ran # {} /\ (\A r \in past.ran : r[3] < store.tok) => past.since > Least]_vars

NeverCaught == past.fill <= Least

NeverAnew == \A b \in past.begun : b[1] = 1

Symmetry == Permutations(Machines)
=============================================================================
