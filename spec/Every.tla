-------------------------------- MODULE Every -------------------------------
(* SPDX-FileCopyrightText: The Tenure Authors                               *)
(* SPDX-License-Identifier: Apache-2.0                                      *)
(*                                                                          *)
(* Every of package once: one of several machines leads and begins periods, *)
(* which a ledger counts; clocks drift.                                     *)
EXTENDS Integers, TLC

CONSTANTS
    Machines,   \* processes that call Every
    Period,     \* P, by a local clock
    Tick,       \* the real time of a step
    Fast,       \* what the fastest clock shows for it,
    Slow,       \* and what the slowest shows
    CatchUp,    \* k
    MaxToken,   \* the last term
    MaxN,       \* the last period of a ledger
    MaxLedgers, \* ledgers, one after the other
    Uses, Wrong

VARIABLES
    store,      \* the lock's record, with the ledger
    net,
    mach,
    past

vars == <<store, net, mach, past>>

-----------------------------------------------------------------------------
(* Time. The drift rate is rho = Fast/Tick - 1, so P/(1+rho) is:             *)

Least == (Period * Tick) \div Fast

Max(a, b) == IF a > b THEN a ELSE b
Min(a, b) == IF a < b THEN a ELSE b

\* An overrun counts for at most k later periods.
Old == (CatchUp + 1) * Period
Aged(age, d) == Min(age + d, Old)

-----------------------------------------------------------------------------
(* The ledger: its id (0: none), the number of periods begun, and the        *)
(* minimum age of the last.                                                  *)

None == [id |-> 0, n |-> 0, age |-> 0]
Same(l, s) == l.n = s.n /\ (l.id = s.id \/ "any ledger" \in Wrong)

\* since.older and since.newer.
Older(l, s) ==
    IF (Same(l, s) \/ ("any period" \in Wrong /\ l.id = s.id)) /\ s.age > l.age
    THEN [l EXCEPT !.age = s.age] ELSE l
Newer(l, s) == IF l.id = s.id /\ s.n > l.n THEN s ELSE l

Carried(age) == Min(age - Period, CatchUp * Period)

-----------------------------------------------------------------------------
(* The lock, assumed correct as in Once.tla.                                 *)
(*   wait   acquires, and watches the ledger                                 *)
(*   lead   leads, and writes the age                                        *)
(*   claim  begins the next period                                           *)
(*   leave  releases the lock                                                *)
(* good: Check passes. got: a write has taken the lock. yes: the claim was   *)
(* applied. seen: its view of the ledger; led: the ledger it writes. asked:  *)
(* the age of a request in flight, for mistakes.                             *)

Never == -1
Idle == [at |-> "wait", tok |-> 0, good |-> FALSE, got |-> FALSE, yes |-> FALSE, led |-> None, seen |-> None, asked |-> Never]

Mine(p) == store.st = "held" /\ store.tok = mach[p].tok
Standing == \E p \in Machines : mach[p].good /\ mach[p].tok = store.tok

Turns(p, m) == mach' = [mach EXCEPT ![p] = m]
Still == UNCHANGED <<store, past>>

Takes(w) == w.k \in {"claim", "take"}

\* Its view outlives the term.
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

Delete ==
    /\ "delete" \in Uses /\ store.st # "absent"
    /\ store' = [store EXCEPT !.st = "absent", !.led = None]
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

\* The age counts from the reply.
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

Grant(p) ==
    LET m == mach[p]
        l == IF store.led.id # 0 THEN store.led
             ELSE [id |-> Fresh, n |-> 0, age |-> IF "old from the beginning" \in Wrong THEN Period ELSE 0]
        s == Older(l, m.seen) IN
    /\ m.at = "wait" /\ m.got /\ m.good
    /\ l.id <= MaxLedgers
    /\ Turns(p, [m EXCEPT !.at = "lead", !.seen = s, !.asked = Never])
    /\ UNCHANGED net /\ Still

\* Heartbeats store the age; late ones would store a lower one.
Beat(p) ==
    LET m == mach[p] IN
    /\ m.at = "lead" /\ m.good /\ Mine(p)
    /\ m.seen # store.led
    /\ Lands(Write("age", p, m.seen)) /\ net' = Claims
    /\ UNCHANGED mach

\* One write begins a period and resets its age.
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

Counted(m) == [m.led EXCEPT !.age = IF Apart THEN 0 ELSE IF m.asked # Never THEN Aged(@, m.asked) ELSE @]
Run(p) ==
    LET m == mach[p] IN
    /\ m.at = "claim" /\ m.good
    /\ m.yes \/ "unconfirmed" \in Wrong
    /\ Turns(p, [m EXCEPT !.at = "lead", !.yes = FALSE, !.seen = Counted(m), !.led = None, !.asked = Never])
    /\ past' = [past EXCEPT !.ran = @ \cup {<<m.led.id, m.led.n, m.tok>>},
                            !.twice = @ \/ \E r \in past.ran : r[1] = m.led.id /\ r[2] = m.led.n]
    /\ UNCHANGED <<store, net>>

\* The work does not run. The release may be the write that begins the period,
\* so it must not age it.
Stop(p) ==
    LET m == mach[p]
        aged == m.yes \/ "ages what is not confirmed" \in Wrong IN
    /\ m.at = "claim"
    /\ Turns(p, IF ~m.good THEN Left(m)
                ELSE IF aged THEN [m EXCEPT !.at = "lead", !.yes = FALSE, !.seen = m.led, !.led = None, !.asked = Never]
                ELSE [m EXCEPT !.at = "leave", !.yes = FALSE, !.asked = Never])
    /\ net' = IF m.good THEN net ELSE Orphaned(p, net)
    /\ Still

\* The release stores the age.
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

Expire(p) ==
    LET m == mach[p] IN
    /\ m.good
    /\ Turns(p, IF m.at \in {"claim", "leave"} THEN [m EXCEPT !.good = FALSE] ELSE Left(m))
    /\ net' = IF m.at = "lead" THEN Orphaned(p, net) ELSE net
    /\ Still

Crash(p) ==
    /\ "crash" \in Uses /\ mach[p] # Idle
    /\ Turns(p, Idle) /\ net' = Orphaned(p, net) /\ Still

\* The clock of the holder's lease is set forward.
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
(* Properties: README.md.                                                    *)

\* Each period fills the bucket by P/(1+rho), time empties it: README.md.
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
(* Reached: reached-*.cfg.                                                   *)

NeverSecond == ~\E r, t \in past.ran : r[1] = t[1] /\ r[2] + 1 = t[2] /\ r[3] # t[3]

NeverTight ==
    [][past'.begun # past.begun /\ past.ran # {} /\ (\A r \in past.ran : r[3] < store.tok) => past.since > Least]_vars

NeverCaught == past.fill <= Least

NeverAgain == \A b \in past.begun : b[1] = 1

Symmetry == Permutations(Machines)
=============================================================================
