------------------------------- MODULE Tenure -------------------------------
(* SPDX-FileCopyrightText: The Tenure Authors                               *)
(* SPDX-License-Identifier: Apache-2.0                                      *)
(*                                                                          *)
(* The protocol of internal/protocol: machines acquire one lock, hold it    *)
(* and send requests to its holder, over a network that loses, delays and   *)
(* repeats writes.                                                          *)
EXTENDS Integers, FiniteSets, TLC

CONSTANTS
    Machines,   \* each an acquire and the lease that it becomes
    Mates,      \* those that share a process; every other has its own
    None,       \* no version, no request, no reply yet
    Step,       \* the request to step down; a hand-over names its target
    Lease,      \* L, by a local clock
    DriftNum,   \* rho, the bound on clock drift, is
    DriftDen,   \* DriftNum/DriftDen
    Grace,      \* the time for stopping before the expiry, by a local clock
    Tick,       \* the real time of a step
    Reserve,    \* how long a reservation lasts, by a local clock
    MaxToken,   \* the last term
    MaxTakes,   \* attempts that an acquirer remembers
    MaxBeats,   \* attempts of unknown outcome that a holder remembers
    Uses,       \* optional events: "crash", "give up", "step down", ...
    Reduced,    \* TRUE: reads are instant; README.md says what else
    Wrong       \* planted mistakes, by name

VARIABLES
    store,      \* the record
    net,        \* writes in flight; each may be applied late and repeatedly
    mach,       \* the machines
    log         \* grants and history, for the properties alone

vars == <<store, net, mach, log>>

-----------------------------------------------------------------------------
(* Time: README.md. A step due by a local clock happens between Shortest and *)
(* Longest.                                                                  *)

\* The clocks of holders and of contenders may be unlike, one raw and one
\* slewed: a clock errs by its Num/DriftDen at most, and its process counts
\* with its Bound/DriftDen. Configurations replace these by Exact. A record
\* says its holder's bound.
Exact == 0
HolderNum == DriftNum
HolderBound == DriftNum
ContenderNum == DriftNum
ContenderBound == DriftNum

Shortest(d) == (d * DriftDen) \div (DriftDen + HolderNum)
Longest(d)  == (d * DriftDen + DriftDen - HolderNum - 1) \div (DriftDen - HolderNum)

\* Shortest by a contender's clock.
Soonest(d) == IF ContenderNum = HolderNum THEN Shortest(d) ELSE (d * DriftDen) \div (DriftDen + ContenderNum)

\* How long a sender may rely on its write, from before sending it.
Window == IF "no grace for drift" \in Wrong THEN Lease
          ELSE IF "one clock alone" \in Wrong THEN (Lease * (DriftDen - HolderBound)) \div DriftDen
          ELSE (Lease * (DriftDen - HolderBound)) \div (DriftDen + HolderBound)
Usable == Window - Grace

\* How long a contender waits for a holder, whose bound may be lower than its own.
Above == (DriftDen + HolderBound) * (DriftDen - ContenderBound)
Patience == IF HolderBound >= ContenderBound \/ "waits a lease" \in Wrong THEN Lease
         ELSE (Lease * (DriftDen - HolderBound) * (DriftDen + ContenderBound) + Above - 1) \div Above

\* No decision depends on a greater age.
Max(a, b) == IF a > b THEN a ELSE b
Old == Max(Longest(Usable), Soonest(Patience))
Aged(a, d) == IF a + d > Old THEN Old ELSE a + d

-----------------------------------------------------------------------------
(* Records.                                                                  *)

Absent == [ver |-> None, beat |-> None, tok |-> 0, st |-> "absent", own |-> None, req |-> None, end |-> None, prev |-> None]

\* An unknown record, or one known to be out of date.
Nothing == [Absent EXCEPT !.st = "unknown"]

OwnerOf(p) == p       \* the owner name
OneName(p) == "owner"  \* one-name.cfg: owner names prove nothing
Successors == {OwnerOf(p) : p \in Machines}

History == "history" \in Uses
Why(how) == IF History THEN how ELSE None

\* The term of r, as its successor records it.
Tenure(r, how) ==
    IF ~History THEN None
    ELSE IF r.st = "reserved" THEN r.prev
    ELSE [tok |-> r.tok, own |-> r.own, end |-> IF r.end # None THEN r.end ELSE how]

Held(p, v, t)  == [ver |-> v, beat |-> v, tok |-> t, st |-> "held", own |-> OwnerOf(p), req |-> None, end |-> None, prev |-> None]
Beaten(r, v)   == [r EXCEPT !.ver = v, !.beat = v]
Asked(r, v, q) == [r EXCEPT !.ver = v, !.req = q]

\* A reservation that nobody claimed is no term.
Freed(r, v, how) ==
    LET s == [r EXCEPT !.ver = v, !.st = "released", !.req = None] IN
    IF ~History THEN [s EXCEPT !.own = None]
    ELSE IF r.st = "reserved" THEN [s EXCEPT !.own = r.prev.own, !.end = r.prev.end, !.prev = None]
    ELSE [s EXCEPT !.end = how]

Kept(r, v, to, how) ==
    [r EXCEPT !.ver = v, !.beat = v, !.st = "reserved", !.own = to, !.req = None,
              !.end = None, !.prev = Tenure([r EXCEPT !.end = Why(how)], how)]

Taken(r) == r.st \in {"held", "reserved"}
Wait(r)  == IF r.st = "reserved" /\ r.own # None THEN Reserve ELSE Patience
SameSign(r, s) == r.st = s.st /\ r.tok = s.tok /\ r.beat = s.beat

-----------------------------------------------------------------------------
(* Machines.                                                                 *)
(*   wait   acquires, watches, sends requests                                *)
(*   leave  has given up, and releases what it may have claimed              *)
(*   hold   has the lease and sends heartbeats, even if asked to step down   *)
(*   quiet  sends no more heartbeats; its work has not returned              *)
(*   done   its work has returned; it releases                               *)
(* age counts from the first view of the beat (wait, leave), or from before  *)
(* the confirmed write (hold). out is the write in flight; unknown are the   *)
(* attempts without a reply.                                                 *)

Idle == [phase |-> "wait", rec |-> Nothing, age |-> 0, out |-> None, unknown |-> {}, past |-> {}]

Expired(m)  == m.age >= Longest(Usable)
Believes(p) == mach[p].phase = "hold" /\ ~Expired(mach[p])

Attempt(o) == [k |-> o.k, ver |-> o.ver, tok |-> o.tok, age |-> o.age, before |-> o.before]

\* A request changes the version but not the beat; a claim does not know its
\* token: 0.
Wrote(as, r) ==
    {a \in as : (a.ver = r.ver \/ (a.ver = r.beat /\ r.st = "held")) /\ a.tok \in {0, r.tok}}

\* Expiry is final.
Final == "expired renews" \notin Wrong

Takes(k) == k \in {"claim", "takeover"}
Counts(k) == Takes(k) \/ k = "heartbeat" \/ "waits from its request" \in Wrong

-----------------------------------------------------------------------------
(* Replies.                                                                  *)

Gone(m) == [Idle EXCEPT !.out = None]

Seen(m, o, r) ==
    [m EXCEPT !.rec = r,
              !.age = IF SameSign(m.rec, r) THEN @ ELSE IF "waits from its request" \in Wrong THEN o.age ELSE 0]

\* A version counts only for the acquire that wrote it.
Known(p, m) == IF "adopts" \in Wrong /\ p \in Mates THEN m.unknown \cup UNION {mach[q].unknown : q \in {r \in Mates : mach[r].phase = "leave"}} ELSE m.unknown

Acquirer(p, m, o, r) ==
    LET as == Known(p, m) \cup (IF Takes(o.k) THEN {Attempt(o)} ELSE {})
        own == IF r.st = "held" THEN Wrote(as, r) ELSE {}
        granted == {[phase |-> "hold", rec |-> r, out |-> None, unknown |-> {},
                     past |-> ({r.prev} \cup a.before) \ {None},
                     age |-> IF "counts from the reply" \in Wrong THEN 0 ELSE a.age] : a \in {b \in own : b.age < Longest(Usable)}}
        \* its own write, applied too late
        late == IF \A a \in own : a.age >= Shortest(Usable)
                THEN {Seen(m, o, r)} ELSE {}
    IN IF m.phase = "wait" THEN granted \cup late
       ELSE {[Seen(m, o, r) EXCEPT !.unknown = IF o.k = "release" /\ r.st # "held" THEN {} ELSE @]}

\* The lease counts from before the attempt that was applied.
Confirmed(m, a, r) ==
    IF a.k = "release" THEN Gone(m)
    ELSE [m EXCEPT !.rec = r, !.unknown = {},
                   !.age = IF a.k = "abdicate" \/ (Final /\ Expired(m)) THEN @
                           ELSE IF "counts from the reply" \in Wrong THEN 0
                           ELSE IF a.age < @ THEN a.age ELSE @]

\* Another process left a request. The deadline stays.
Term(m, r) ==
    /\ r.tok = m.rec.tok /\ r.beat = m.rec.beat
    /\ r.st = "held" \/ "request on any record" \in Wrong

Counted(a, as) ==
    IF "the latest attempt" \notin Wrong \/ ~Counts(a.k) THEN a
    ELSE [a EXCEPT !.age = CHOOSE n \in {b.age : b \in as \cup {a}} : \A b \in as : n <= b.age]

Holder(m, o, r) ==
    LET own == Wrote(m.unknown \cup {Attempt(o)}, r) IN
    IF own # {} THEN {Confirmed(m, Counted(a, m.unknown), r) : a \in own}
    ELSE IF Term(m, r) THEN {[m EXCEPT !.rec = r, !.unknown = {}]}
    ELSE {Gone(m)}

Told(p, o, r) ==
    LET m == [mach[p] EXCEPT !.out = None] IN
    IF m.phase \in {"wait", "leave"} THEN Acquirer(p, m, o, r) ELSE Holder(m, o, r)

\* A new holder first writes the history of earlier terms.
Latest(p, m) ==
    IF mach[p].phase = "wait" /\ m.phase = "hold"
    THEN [log EXCEPT !.last = m.rec.tok,
                     !.granted = IF History THEN @ \cup {m.rec.tok} ELSE @,
                     !.past = IF History THEN @ \cup m.past ELSE @]
    ELSE log
Becomes(p, m) == mach' = [mach EXCEPT ![p] = [m EXCEPT !.past = {}]] /\ log' = Latest(p, m)

-----------------------------------------------------------------------------
(* The store.                                                                *)

Fits(w, s) ==
    CASE w.k = "claim" -> s.st \in {"absent", "released"}
      [] w.k = "heartbeat" /\ "heartbeat restores" \in Wrong ->
            w.prev.tok = s.tok /\ (w.prev.ver = s.ver \/ s.st = "released")
      [] "version alone" \in Wrong -> w.prev.ver = s.ver
      [] OTHER -> w.prev.ver = s.ver /\ w.prev.tok = s.tok

Written(w, s) ==
    IF w.k = "claim"
    THEN [w.next EXCEPT !.tok = s.tok + 1, !.prev = IF s.st = "absent" THEN None ELSE Tenure(s, "released")]
    ELSE w.next

\* The true history.
Happened(w, s) ==
    LET ended(b, how) == [b EXCEPT ![s.tok].end = how]
        begun(b) == [b EXCEPT ![s.tok + 1] = [own |-> OwnerOf(w.by), end |-> None]] IN
    [log EXCEPT !.book =
        CASE ~History -> @
          [] w.k = "claim" -> begun(@)
          [] w.k = "takeover" -> begun(IF log.book[s.tok].end = None THEN ended(@, "expired") ELSE @)
          [] w.k = "abdicate" -> ended(@, "stopped")
          [] w.k = "release" -> ended(@, IF w.next.st = "reserved" THEN "handed over" ELSE "released")
          [] w.k = "force release" /\ s.st = "held" -> ended(@, IF w.next.st = "reserved" THEN "revoked" ELSE "freed")
          [] OTHER -> @]

\* A swap that fails once can never succeed.
Living(ws, s) ==
    {w \in ws :
        \/ w.k = "claim"
        \/ Fits(w, s)
        \/ (w.k = "heartbeat" /\ "heartbeat restores" \in Wrong /\ w.prev.tok = s.tok)
        \/ ("version alone" \in Wrong /\ \E c \in ws : c.k = "claim" /\ c.ver = w.prev.ver)}

\* Reduced: old records are forgotten, and attempts that nothing can confirm.
Refreshed(m, s, ws) ==
    IF ~Reduced THEN m
    ELSE LET lives(v) == v \in {s.ver, s.beat} \/ \E w \in ws : w.ver = v IN
         [m EXCEPT !.unknown = {a \in @ : lives(a.ver)},
                   !.age = IF m.phase \in {"wait", "leave"} /\ ~SameSign(m.rec, s) THEN 0 ELSE @,
                   !.rec = IF m.rec = s THEN s
                           ELSE IF SameSign(m.rec, s) THEN [@ EXCEPT !.ver = None]
                           ELSE IF m.phase \in {"wait", "leave"} THEN Nothing
                           ELSE [@ EXCEPT !.ver = None, !.beat = IF @ = s.beat THEN @ ELSE None]]

Waits(p, w) == mach[p].out # None /\ w.by = p /\ mach[p].out.ver = w.ver /\ mach[p].out.k = w.k /\ mach[p].out.res = None

Apply(w) ==
    /\ w \in net
    /\ Fits(w, store)
    /\ Written(w, store).tok <= MaxToken
    /\ store' = Written(w, store)
    /\ net' = Living(net, store')
    /\ mach' = [q \in Machines |->
            Refreshed(IF Waits(q, w) THEN [mach[q] EXCEPT !.out.res = store'] ELSE mach[q], store', net')]
    /\ log' = Happened(w, store)

Refuse(p) ==
    /\ mach[p].out # None /\ mach[p].out.res = None
    /\ \A w \in net : Waits(p, w) => ~Fits(w, store)
    /\ mach' = [mach EXCEPT ![p].out.res = store]
    /\ UNCHANGED <<store, net, log>>

Reply(p) ==
    /\ mach[p].out # None /\ mach[p].out.res # None
    /\ \E m \in Told(p, mach[p].out, mach[p].out.res) : Becomes(p, m)
    /\ UNCHANGED <<store, net>>

Timeout(p) ==
    LET m == mach[p]
        as == m.unknown \cup {Attempt(m.out)} IN
    /\ m.out # None
    /\ mach' = [mach EXCEPT ![p] =
            [m EXCEPT !.out = None,
                      !.unknown = IF m.phase \in {"wait", "leave"} /\ ~Takes(m.out.k) THEN @
                                  ELSE IF Takes(m.out.k) \/ Cardinality(as) <= MaxBeats THEN as ELSE {Attempt(m.out)}]]
    /\ UNCHANGED <<store, net, log>>

-----------------------------------------------------------------------------
(* Writes. Version numbers that nothing refers to are reused.                *)

VersionsOf(r) == {r.ver, r.beat}
InUse ==
    VersionsOf(store)
    \cup UNION {{w.ver, w.prev.ver} \cup VersionsOf(w.next) : w \in net}
    \cup UNION {VersionsOf(mach[p].rec) \cup {a.ver : a \in mach[p].unknown} : p \in Machines}
    \cup UNION {IF mach[p].out = None THEN {}
                ELSE {mach[p].out.ver} \cup (IF mach[p].out.res = None THEN {} ELSE VersionsOf(mach[p].out.res)) : p \in Machines}
NumbersOf(p) == {v[2] : v \in {u \in InUse : u # None /\ u[1] = p}}
Fresh(p) == <<p, 1 + (CHOOSE n \in NumbersOf(p) \cup {0} : \A k \in NumbersOf(p) : k <= n)>>

\* Reduced: a write counts as unknown from the start.
Begin(p, k, prev, next) ==
    LET m == mach[p]
        o == [k |-> k, ver |-> next.ver, tok |-> next.tok, res |-> None, prev |-> prev, next |-> next,
              before |-> IF k = "takeover" /\ prev.st = "held" THEN {prev.prev} \ {None} ELSE {},
              age |-> IF Final /\ Counts(k) /\ m.phase = "hold" /\ Expired(m) THEN Old ELSE 0]
        room == Cardinality(m.unknown) < (IF m.phase \in {"wait", "leave"} THEN MaxTakes ELSE MaxBeats)
        kept == IF room THEN m.unknown ELSE {}
        remembered == Takes(k) \/ m.phase \notin {"wait", "leave"}
    IN /\ m.out = None
       /\ mach' = [mach EXCEPT ![p] =
            IF ~remembered THEN [m EXCEPT !.out = IF Reduced THEN None ELSE o]
            ELSE IF Reduced THEN [m EXCEPT !.unknown = kept \cup {Attempt(o)}]
            ELSE [m EXCEPT !.out = o, !.unknown = IF Takes(k) THEN kept ELSE @]]

\* Sending loses older messages that the machine has forgotten, except one
\* claim.
Lingers(w, m, k) == (\E a \in m.unknown : a.ver = w.ver) \/ (w.k = "claim" /\ k # "claim")

Send(p, k, prev, next) ==
    /\ Begin(p, k, prev, next)
    /\ Reduced /\ k # "claim" => prev.ver = store.ver
    /\ net' = Living({w \in net : w.by # p \/ Lingers(w, mach'[p], k)}
                     \cup {[k |-> k, by |-> p, ver |-> next.ver, prev |-> [ver |-> prev.ver, tok |-> prev.tok], next |-> next]}, store)
    /\ UNCHANGED <<store, log>>

Look(p) ==
    /\ mach[p].phase \in {"wait", "leave"}
    /\ Reduced => mach[p].rec # store
    /\ IF Reduced
       THEN /\ \E m \in Told(p, [k |-> "read"], store) : Becomes(p, m)
       ELSE Begin(p, "read", Absent, Absent) /\ UNCHANGED log
    /\ UNCHANGED <<store, net>>

Collide(p) ==
    /\ Reduced
    /\ mach[p].phase \in {"hold", "quiet", "done"} /\ mach[p].out = None
    /\ mach[p].rec.ver # store.ver
    /\ \E m \in Holder(mach[p], [k |-> "heartbeat", ver |-> <<p, 0>>, tok |-> 0, age |-> 0, before |-> {}], store) : Becomes(p, m)
    /\ UNCHANGED <<store, net>>

Claim(p, v) ==
    /\ mach[p].phase = "wait"
    /\ Reduced => mach[p].rec.st \in {"absent", "released"}
    /\ Send(p, "claim", Absent, Held(p, v, 0))

\* The holder is dead, the lock is reserved for p, or the term is p's own, but
\* too old.
Dead(m) == Taken(m.rec) /\ m.age >= Soonest(Wait(m.rec))
Takeover(p, v) ==
    LET m == mach[p] IN
    /\ m.phase = "wait"
    /\ \/ Dead(m)
       \/ m.rec.st = "reserved" /\ m.rec.own = OwnerOf(p)
       \/ m.rec.st = "held" /\ \E a \in Wrote(m.unknown, m.rec) : a.age >= Shortest(Usable)
    /\ Send(p, "takeover", m.rec,
            [Held(p, v, IF "token not raised" \in Wrong THEN m.rec.tok ELSE m.rec.tok + 1) EXCEPT !.prev = Tenure(m.rec, "expired")])

Heartbeat(p, v) ==
    /\ mach[p].phase = "hold"
    /\ Send(p, "heartbeat", mach[p].rec, Beaten(mach[p].rec, v))

\* Acquirers wait out the lease.
Quit(p, v) ==
    /\ mach[p].phase = "quiet"
    /\ Send(p, "abdicate", mach[p].rec, [mach[p].rec EXCEPT !.ver = v, !.end = Why("stopped")])

\* The new version stops heartbeats in flight.
Release(p, fresh) ==
    LET m == mach[p]
        v == IF "version kept" \in Wrong THEN m.rec.ver ELSE fresh IN
    /\ m.phase = "done" \/ (m.phase = "leave" /\ m.rec.st = "held" /\ Wrote(m.unknown, m.rec) # {})
    /\ \/ Send(p, "release", m.rec, Freed(m.rec, v, "released"))
       \/ /\ m.phase = "done" /\ m.rec.req \notin {None, Step}
          /\ Send(p, "release", m.rec, Kept(m.rec, v, m.rec.req, "handed over"))
       \/ /\ m.phase = "done" /\ "offer" \in Uses  \* unasked
          /\ \E to \in Successors : Send(p, "release", m.rec, Kept(m.rec, v, to, "handed over"))

\* A request is no sign of life: the beat stays.
Ask(p, v, q) ==
    LET m == mach[p] IN
    /\ m.phase = "wait"
    /\ \/ q = Step /\ "step down" \in Uses
       \/ q # Step /\ "hand over" \in Uses
    /\ m.rec.st = "held" /\ m.rec.req = None
    /\ Send(p, "request", m.rec, Asked(m.rec, v, q))

Free(p, v) ==
    /\ mach[p].phase = "wait" /\ "free" \in Uses
    /\ Dead(mach[p])
    /\ Send(p, "force release", mach[p].rec, Freed(mach[p].rec, v, "freed"))

\* The lock is reserved for nobody until the holder's lease has expired.
Revoke(p, v) ==
    /\ mach[p].phase = "wait" /\ "revoke" \in Uses
    /\ mach[p].rec.st = "held"
    /\ Send(p, "force release", mach[p].rec, Kept(mach[p].rec, v, None, "revoked"))

-----------------------------------------------------------------------------
(* Users, faults and time.                                                   *)

Stale(a) == [a EXCEPT !.age = IF Counts(a.k) THEN Old ELSE @]
Turns(p, m) == mach' = [mach EXCEPT ![p] = m] /\ UNCHANGED <<store, net, log>>

GiveUp(p) ==
    LET m == mach[p] IN
    /\ "give up" \in Uses
    /\ m.phase = "wait" /\ (m.unknown # {} \/ (m.out # None /\ Takes(m.out.k)))
    /\ Turns(p, [m EXCEPT !.phase = "leave"])

Leave(p) ==
    /\ mach[p].phase = "leave" /\ mach[p].out = None
    /\ Turns(p, [mach[p] EXCEPT !.phase = "wait", !.unknown = {}])

Quiet(p) ==
    /\ mach[p].phase = "hold" /\ "quit" \in Uses
    /\ Turns(p, [mach[p] EXCEPT !.phase = "quiet", !.age = Old, !.unknown = {Stale(a) : a \in @}])

Done(p) ==
    /\ mach[p].phase \in {"hold", "quiet"}
    /\ Turns(p, [mach[p] EXCEPT !.phase = "done", !.age = Old, !.unknown = {Stale(a) : a \in @}])

Uncertain(p) ==
    /\ mach[p].phase = "done" /\ mach[p].out = None
    /\ Turns(p, Gone(mach[p]))

Expire(p) ==
    /\ mach[p].phase = "hold" /\ mach[p].age >= Shortest(Usable) /\ ~Expired(mach[p])
    /\ Turns(p, IF Final THEN [mach[p] EXCEPT !.age = Old, !.unknown = {Stale(a) : a \in @},
                                              !.out = IF @ = None THEN None ELSE Stale(mach[p].out)]
                ELSE [mach[p] EXCEPT !.age = Old])

Crash(p) ==
    /\ "crash" \in Uses /\ mach[p] # Idle
    /\ Reduced => mach[p].phase # "wait"
    /\ Turns(p, Idle)

Later(m, d) ==
    LET old == Final /\ m.phase = "hold" /\ Aged(m.age, d) >= Longest(Usable)
        grown(a) == IF ~Counts(a.k) THEN a.age ELSE IF old THEN Old ELSE Aged(a.age, d) IN
    [m EXCEPT !.age = IF Taken(m.rec) THEN Aged(@, d) ELSE @,
              !.out = IF @ = None THEN None ELSE [m.out EXCEPT !.age = grown(m.out)],
              !.unknown = {[a EXCEPT !.age = grown(a)] : a \in @}]
Pass(d) == mach' = [p \in Machines |-> Later(mach[p], d)] /\ UNCHANGED <<store, net, log>>

-----------------------------------------------------------------------------
Init ==
    /\ store = Absent
    /\ net = {}
    /\ mach = [p \in Machines |-> [Idle EXCEPT !.rec = IF Reduced THEN Absent ELSE Nothing]]
    /\ log = [last |-> 0, granted |-> {}, past |-> {},
              book |-> IF History THEN [t \in 1..MaxToken |-> [own |-> None, end |-> None]] ELSE None]

Next ==
    \/ Pass(Tick)
    \/ \E w \in net : Apply(w)
    \/ \E p \in Machines :
        \/ Look(p) \/ Collide(p)
        \/ mach[p].out = None /\ LET v == Fresh(p) IN
            \/ Claim(p, v) \/ Takeover(p, v) \/ Heartbeat(p, v) \/ Quit(p, v) \/ Release(p, v)
            \/ \E q \in Successors \cup {Step} : Ask(p, v, q)
            \/ Free(p, v) \/ Revoke(p, v)
        \/ Refuse(p) \/ Reply(p) \/ Timeout(p)
        \/ GiveUp(p) \/ Leave(p) \/ Quiet(p) \/ Done(p) \/ Uncertain(p)
        \/ Expire(p) \/ Crash(p)

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
(* Properties: README.md.                                                    *)

OneHolder == \A p, q \in Machines : Believes(p) /\ Believes(q) => p = q

Guarded == \A p \in Machines : Believes(p) => store.tok = mach[p].rec.tok /\ Taken(store)

GrantsRise ==
    [][\A p \in Machines : mach[p].phase = "wait" /\ mach'[p].phase = "hold" => mach'[p].rec.tok > log.last]_vars

HistoryTrue == \A t \in log.past : log.book[t.tok] = [own |-> t.own, end |-> t.end]

HistoryComplete ==
    \A t, u \in log.granted :
        u = t + 1 \/ (u = t + 2 /\ log.book[t + 1].end = "expired") => \E e \in log.past : e.tok = t

TokensRise == [][store'.tok >= store.tok]_vars

ReleasedStays == [][store.st = "released" => store' = store \/ store'.tok > store.tok]_vars

ExpiredStays ==
    [][\A p \in Machines :
        mach[p].phase = "hold" /\ Expired(mach[p]) /\ mach'[p].phase = "hold" => Expired(mach'[p])]_vars

NoFalseLoss ==
    [][\A p \in Machines :
        mach[p].phase \in {"hold", "quiet"} /\ mach'[p].phase = "wait" =>
            store.st # "held" \/ store.tok # mach[p].rec.tok]_vars

-----------------------------------------------------------------------------
(* Reached: reached-*.cfg.                                                   *)

NeverBeside == ~\E p, q \in Machines : p # q /\ Believes(p) /\ mach[q].phase = "hold" /\ Expired(mach[q])

NeverReopened ==
    ~\E p \in Machines :
        /\ mach[p].phase \in {"hold", "quiet", "done"} /\ mach[p].rec.tok < store.tok
        /\ store.st = "held" /\ store.ver[1] = p

NeverAsked == ~\E p \in Machines : Believes(p) /\ mach[p].rec.req # None
NeverRevoked == ~\E p \in Machines : Believes(p) /\ store.st = "reserved" /\ store.own = None

NeverTooOld ==
    ~\E p \in Machines :
        /\ mach[p].phase = "wait" /\ store.st = "held"
        /\ \E a \in Wrote(mach[p].unknown, store) : a.age >= Longest(Usable)

NeverThird == ~\E p \in Machines : Believes(p) /\ mach[p].rec.tok >= 3

NeverTwoUnknown ==
    ~\E p \in Machines :
        /\ Believes(p)
        /\ \E a, b \in mach[p].unknown : a # b /\ a.ver = store.ver

-----------------------------------------------------------------------------
(* Machine names and version numbers do not distinguish states.              *)

Symmetry == IF Cardinality(Machines) > 4 THEN {} ELSE Permutations(Machines)

View ==
    LET used == InUse \ {None}
        name == [v \in used \cup {None} |->
                    IF v = None THEN None ELSE <<v[1], Cardinality({u \in used : u[1] = v[1] /\ u[2] <= v[2]})>>]
        named(r) == [r EXCEPT !.ver = name[@], !.beat = name[@]]
    IN <<named(store), log,
         {<<w.k, w.by, name[w.prev.ver], w.prev.tok, named(w.next)>> : w \in net},
         [p \in Machines |->
            LET m == mach[p] IN
            <<m.phase, m.age, named(m.rec), {<<a.k, name[a.ver], a.tok, a.age, a.before>> : a \in m.unknown},
              IF m.out = None THEN None
              ELSE <<m.out.k, name[m.out.ver], m.out.tok, m.out.age, IF m.out.res = None THEN None ELSE named(m.out.res)>> >>]>>
=============================================================================
