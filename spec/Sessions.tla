------------------------------ MODULE Sessions ------------------------------
(* SPDX-FileCopyrightText: The Tenure Authors                               *)
(* SPDX-License-Identifier: Apache-2.0                                      *)
(*                                                                          *)
(* Processes open a session, keep it alive with one heartbeat and take      *)
(* locks under it. Others take the same locks as leases of their own.       *)
EXTENDS Integers, TLC

CONSTANTS
    Procs,
    Keys,       \* the names of the locks
    None,       \* no session: the lock is a lease of its own
    Sessioned,  \* processes that take locks under sessions
    Alone,      \* processes that take locks as leases of their own
    Lease, DriftNum, DriftDen, Tick, MaxToken,
    MaxOpens,   \* sessions that a process opens
    Uses, Wrong

VARIABLES
    lock,       \* the locks' records, by name
    ses,        \* the sessions' records, by id
    net,
    proc,
    last        \* the latest granted tokens, for GrantsRise

vars == <<lock, ses, net, proc, last>>

-----------------------------------------------------------------------------
(* Time, as in Tenure.tla, without a grace.                                  *)

Shortest(d) == (d * DriftDen) \div (DriftDen + DriftNum)
Longest(d)  == (d * DriftDen + DriftDen - DriftNum - 1) \div (DriftDen - DriftNum)
Window == (Lease * (DriftDen - DriftNum)) \div (DriftDen + DriftNum)

Max(a, b) == IF a > b THEN a ELSE b
Min(a, b) == IF a < b THEN a ELSE b
Old == Max(Longest(Window), Shortest(Lease))
Aged(a, d) == IF a < 0 THEN a ELSE Min(a + d, Old)

-----------------------------------------------------------------------------
(* Records. Without versions: a write drops all other swaps from net. age    *)
(* counts from before the write of the beat.                                 *)

Ids == Procs \X (1..MaxOpens)

NoLock   == [st |-> "absent", tok |-> 0, ses |-> None, age |-> Old]
Nothing  == [key |-> None, tok |-> 0]  \* the lock asked about, or to release
Unopened == [st |-> "absent", age |-> Old, req |-> Nothing]
Absent(r) == r.st \in {"absent", "deleted"}

\* A view of a session: the age of its beat, or one of these.
Unseen == -1
Gone   == -2  \* no record, by a strong read after the lock was seen
Shut   == -3  \* closed

-----------------------------------------------------------------------------
(* Processes.                                                                *)
(*   up     its session: none; opening; open; stop: closing, with heartbeats *)
(*          while work goes on; done: nothing runs under it                  *)
(*   id, n  the session, and how many it has opened                          *)
(*   since  the age of the write from which its deadline counts              *)
(*   no     a lock (name, token) held in its name, but not by it             *)
(*   knows  its view of each session                                         *)
(* and of each lock, in on:                                                  *)
(*   at     idle; wait; hold; done: releases                                 *)
(*   under  the session of the acquire and of the lock                       *)
(*   tok    the granted token                                                *)
(*   got    the token that its write got, of which it learns late or never   *)
(*   age    the age of the write from which a lease of its own counts        *)
(*   saw    the age of the beat in view                                      *)

Off == [at |-> "idle", under |-> None, tok |-> 0, got |-> 0, age |-> Old, saw |-> Unseen]
Fresh == [up |-> "none", id |-> None, n |-> 0, since |-> Old, no |-> Nothing,
          knows |-> [s \in Ids |-> Unseen], on |-> [k \in Keys |-> Off]]

Over(age) == age >= Longest(Window)

\* Holder.Open.
Open(m, s) ==
    /\ m.id = s /\ ~Over(m.since)
    /\ m.up = "open" \/ "only the deadline" \in Wrong

Own(s) == s = None \/ "deadline of its own" \in Wrong
Sent(s, age) == IF Own(s) THEN age ELSE Old

Believes(p, k) ==
    LET m == proc[p]  l == m.on[k] IN
    /\ l.at = "hold"
    /\ Own(l.under) => ~Over(l.age)
    /\ l.under # None => IF Own(l.under) THEN m.up = "open" ELSE Open(m, l.under)

\* Work that was told to stop may go on until the deadline.
Works(p, k) ==
    LET m == proc[p]  l == m.on[k] IN
    /\ l.at = "hold"
    /\ IF Own(l.under) THEN ~Over(l.age) ELSE m.id = l.under /\ ~Over(m.since)

\* Acquirer.Wrote.
Mine(m, k) == LET l == m.on[k] IN l.got = lock[k].tok \/ (l.at \in {"hold", "done"} /\ l.tok = lock[k].tok)

-----------------------------------------------------------------------------
(* The store. Claims and openings may be applied again; other writes are     *)
(* swaps.                                                                    *)

OfLock(w) == w.k \in {"claim", "take", "beat", "free"}
Conditional(w) == w.k \notin {"claim", "open"}

Fits(w) ==
    CASE w.k = "claim" -> lock[w.key].st \in {"absent", "released"}
      [] w.k = "open" -> Absent(ses[w.ses]) \/ ("over a closed one" \in Wrong /\ ses[w.ses].st = "closed")
      [] OTHER -> TRUE

Grows(w) == w.k \in {"claim", "take"}

Knows(m) == IF "peek" \in Uses THEN m.knows ELSE [s \in Ids |-> Unseen]
Afresh(m, k) == [m EXCEPT !.on[k].saw = Unseen, !.knows = Knows(m)]

ApplyLock(w) ==
    LET k == w.key  r == lock[k] IN
    /\ w \in net /\ OfLock(w) /\ Fits(w)
    /\ Grows(w) => r.tok < MaxToken
    /\ lock' = [lock EXCEPT ![k] =
            CASE Grows(w) -> [st |-> "held", tok |-> r.tok + 1, ses |-> w.ses, age |-> w.age]
              [] w.k = "beat" -> [r EXCEPT !.age = w.age]
              [] w.k = "free" -> [r EXCEPT !.st = "released", !.ses = None, !.age = Old]]
    /\ net' = {u \in net : ~(OfLock(u) /\ u.key = k /\ (Conditional(u) \/ lock'[k].tok = MaxToken))}
    /\ proc' = [q \in Procs |->
            IF Grows(w) /\ w.me /\ w.by = q
            THEN [Afresh(proc[q], k) EXCEPT !.on[k].got = r.tok + 1, !.on[k].age = w.age]
            ELSE Afresh(proc[q], k)]
    /\ UNCHANGED <<ses, last>>

\* A request leaves the beat, so views stay; after any other write a swap on an
\* old view fails.
Reopens(w) == w.k = "open" /\ {"over a closed one", "deleted at once"} \cap Wrong # {}
ApplySession(w) ==
    LET s == w.ses IN
    /\ w \in net /\ ~OfLock(w) /\ Fits(w)
    /\ ses' = [ses EXCEPT ![s] =
            CASE w.k \in {"open", "renew"} -> [st |-> "alive", age |-> w.age, req |-> Nothing]
              [] w.k = "close" -> [st |-> "closed", age |-> Old, req |-> Nothing]
              [] w.k = "ask" -> [@ EXCEPT !.req = [key |-> w.key, tok |-> w.tok]]]
    /\ net' = {u \in net : OfLock(u) \/ u.ses # s \/ (Reopens(u))}
    /\ proc' = IF w.k = "ask" \/ "before it is closed" \in Wrong THEN proc
               ELSE [q \in Procs |-> [proc[q] EXCEPT !.knows[s] = IF @ >= 0 THEN Unseen ELSE @]]
    /\ UNCHANGED <<lock, last>>

Delete(s) ==
    /\ "delete" \in Uses
    /\ ses[s].st = "closed" \/ ("deleted alive" \in Wrong /\ ses[s].st = "alive")
    /\ ses' = [ses EXCEPT ![s] = [Unopened EXCEPT !.st = "deleted"]]
    /\ net' = {w \in net : OfLock(w) \/ w.ses # s \/ Reopens(w)}
    /\ UNCHANGED <<lock, proc, last>>

-----------------------------------------------------------------------------
(* Processes.                                                                *)

Turns(p, m) == proc' = [proc EXCEPT ![p] = m]
Write(what, k, p, s, age) == [k |-> what, key |-> k, by |-> p, me |-> FALSE, ses |-> s, tok |-> 0, age |-> age]
Still == UNCHANGED <<lock, ses, last>>

Forgotten(p, k) == {IF w.by = p /\ w.me /\ w.key = k THEN [w EXCEPT !.me = FALSE, !.age = Old] ELSE w : w \in net}

Left(m) == \E k \in Keys : m.on[k].under = m.id

Ended(m, k, at) ==
    LET l == [m.on[k] EXCEPT !.at = at, !.got = 0, !.saw = Unseen,
                             !.under = IF at = "idle" THEN None ELSE @,
                             !.tok = IF at = "idle" THEN 0 ELSE @,
                             !.age = IF at = "hold" THEN @ ELSE Old]
        n == [m EXCEPT !.on[k] = l, !.knows = Knows(m)]
        over == at = "idle" /\ m.up = "none" /\ ~Left(n) IN
    [n EXCEPT !.id = IF over THEN None ELSE @, !.since = IF over THEN Old ELSE @]

(* The session.                                                              *)

\* Ids are never reused.
Begin(p) ==
    LET m == proc[p]
        n == IF "an id again" \in Wrong THEN 1 ELSE m.n + 1
        s == <<p, n>> IN
    /\ p \in Sessioned /\ m.up = "none" /\ n <= MaxOpens
    /\ Turns(p, [m EXCEPT !.id = s, !.n = n,
                          !.up = IF "unconfirmed" \in Wrong THEN "open" ELSE "opening",
                          !.since = IF "unconfirmed" \in Wrong THEN 0 ELSE Old])
    /\ net' = net \cup {Write("open", None, p, s, 0)}
    /\ Still

Confirm(p) ==
    LET m == proc[p] IN
    /\ m.up = "opening" /\ ses[m.id].st = "alive" /\ ~Over(ses[m.id].age)
    /\ Turns(p, [m EXCEPT !.up = "open", !.since = ses[m.id].age])
    /\ UNCHANGED net /\ Still

Leave(p) ==
    LET m == proc[p] IN
    /\ m.up # "none"
    /\ m.up \in {"opening", "done"} \/ ses[m.id].st # "alive"
    /\ "unconfirmed" \in Wrong => ses[m.id].st = "closed"
    /\ Turns(p, IF Left(m) THEN [m EXCEPT !.up = "none", !.no = Nothing]
                ELSE [m EXCEPT !.up = "none", !.no = Nothing, !.id = None, !.since = Old])
    /\ UNCHANGED net /\ Still

Renew(p) ==
    LET m == proc[p] IN
    /\ m.up \in {"open", "stop"} /\ ses[m.id].st = "alive" /\ ~Over(m.since)
    /\ Turns(p, [m EXCEPT !.no = IF ses[m.id].req = Nothing THEN @ ELSE ses[m.id].req])
    /\ net' = net \cup {Write("renew", None, p, m.id, 0)}
    /\ Still

Renewed(p) ==
    LET m == proc[p] IN
    /\ m.up \in {"open", "stop"} /\ ses[m.id].st = "alive"
    /\ ~Over(m.since) /\ ses[m.id].age < m.since
    /\ Turns(p, [m EXCEPT !.since = ses[m.id].age])
    /\ UNCHANGED net /\ Still

Expire(p) ==
    LET m == proc[p] IN
    /\ m.up \in {"open", "stop"} /\ ~Over(m.since) /\ m.since >= Shortest(Window)
    /\ Turns(p, [m EXCEPT !.since = Old])
    /\ UNCHANGED net /\ Still

\* Check fails, and work begins to stop.
Stop(p) ==
    /\ "stop" \in Uses /\ proc[p].up = "open"
    /\ Turns(p, [proc[p] EXCEPT !.up = "stop"])
    /\ UNCHANGED net /\ Still

Done(p) ==
    LET m == proc[p] IN
    /\ m.up = "stop"
    /\ (\A k \in Keys : m.on[k].at # "hold" \/ m.on[k].under # m.id) \/ "closed while work goes on" \in Wrong
    /\ Turns(p, [m EXCEPT !.up = "done"])
    /\ UNCHANGED net /\ Still

Close(p) ==
    LET m == proc[p] IN
    /\ m.up = "done" /\ ses[m.id].st = "alive"
    /\ net' = net \cup {Write("close", None, p, m.id, Old)}
    /\ UNCHANGED proc /\ Still

\* An orphan, held in its name but not by it, is released.
Disclaim(p) ==
    LET m == proc[p]
        k == m.no.key
        orphan == lock[k].st = "held" /\ lock[k].ses = m.id /\ lock[k].tok = m.no.tok /\ ("orphan unasked" \in Wrong \/ ~Mine(m, k)) IN
    /\ m.no # Nothing
    /\ IF orphan THEN net' = net \cup {Write("free", k, p, None, Old)} /\ UNCHANGED proc
       ELSE Turns(p, [m EXCEPT !.no = Nothing]) /\ UNCHANGED net
    /\ Still

(* The locks.                                                                *)

Acquire(p, k) ==
    LET m == proc[p] IN
    /\ m.on[k].at = "idle"
    /\ \/ p \in Sessioned /\ m.up = "open" /\ Turns(p, [m EXCEPT !.on[k].at = "wait", !.on[k].under = m.id])
       \/ p \in Alone /\ Turns(p, [m EXCEPT !.on[k].at = "wait"])
    /\ UNCHANGED net /\ Still

\* An acquire releases an orphan of its own session: Acquirer.orphan.
ReleaseOrphan(p, k) ==
    LET m == proc[p]  l == m.on[k] IN
    /\ l.at = "wait" /\ l.under # None /\ l.under = m.id /\ m.up = "open"
    /\ lock[k].st = "held" /\ lock[k].ses = m.id /\ ("orphan of its own" \in Wrong \/ ~Mine(m, k))
    /\ net' = net \cup {Write("free", k, p, None, Old)}
    /\ UNCHANGED proc /\ Still

\* At most one claim in flight is its own.
Take(what, p, k) ==
    LET m == proc[p]  l == m.on[k] IN
    /\ l.at = "wait" /\ lock[k].tok < MaxToken
    /\ l.under # None => m.up = "open"
    /\ net' = {w \in net : ~(w.by = p /\ w.me /\ w.k = what /\ w.key = k)}
           \cup {[Write(what, k, p, l.under, Sent(l.under, 0)) EXCEPT !.me = TRUE]}

Claim(p, k) ==
    /\ lock[k].st \in {"absent", "released"}
    /\ Take("claim", p, k)
    /\ UNCHANGED proc /\ Still

Look(p, k) ==
    LET m == proc[p] IN
    /\ m.on[k].at = "wait" /\ lock[k].st = "held" /\ m.on[k].saw = Unseen
    /\ lock[k].ses = None \/ "peek" \in Uses
    /\ Turns(p, [m EXCEPT !.on[k].saw = 0,
                          !.knows = [s \in Ids |-> IF @[s] = Gone /\ "absent before the lock" \notin Wrong THEN Unseen ELSE @[s]]])
    /\ UNCHANGED net /\ Still

\* A strong read proves absence; it may precede the view of the lock.
Asks(p, k, s) ==
    /\ proc[p].on[k].at = "wait" /\ lock[k].st = "held" /\ lock[k].ses = s
    /\ proc[p].on[k].saw >= 0 \/ "peek" \notin Uses
Peek(p, s) ==
    LET m == proc[p]
        is == IF Absent(ses[s]) THEN Gone
              ELSE IF ses[s].st = "closed" THEN Shut
              ELSE IF m.knows[s] >= 0 THEN m.knows[s] ELSE 0 IN
    /\ \E k \in Keys : Asks(p, k, s) \/ ("peek" \in Uses /\ m.on[k].at = "wait")
    /\ m.knows[s] # is
    /\ Turns(p, [m EXCEPT !.knows[s] = is])
    /\ UNCHANGED net /\ Still

\* A stale read proves nothing.
Stale(p, s) ==
    /\ "a stale read" \in Wrong /\ \E k \in Keys : Asks(p, k, s)
    /\ Turns(p, [proc[p] EXCEPT !.knows[s] = Gone])
    /\ UNCHANGED net /\ Still

CloseDead(p, s) ==
    /\ "dead sessions stay" \notin Wrong
    /\ \E k \in Keys : Asks(p, k, s)
    /\ proc[p].knows[s] >= Shortest(Lease) /\ ses[s].st = "alive"
    /\ net' = net \cup {Write("close", None, s[1], s, Old)}
    /\ UNCHANGED proc /\ Still

Inquire(p, k, s) ==
    /\ "ask" \in Uses /\ "orphans never asked after" \notin Wrong
    /\ Asks(p, k, s) /\ proc[p].knows[s] >= 0
    /\ ses[s].st = "alive" /\ ses[s].req = Nothing
    /\ net' = net \cup {[Write("ask", k, s[1], s, Old) EXCEPT !.tok = lock[k].tok]}
    /\ UNCHANGED proc /\ Still

Dead(m, k) ==
    LET r == lock[k]  saw == m.on[k].saw IN
    IF r.ses = None THEN saw >= Shortest(Lease)
    ELSE \/ ("peek" \in Uses => saw >= 0) /\ m.knows[r.ses] \in {Gone, Shut}
         \/ "before it is closed" \in Wrong /\ m.knows[r.ses] >= Shortest(Lease)
Takeover(p, k) ==
    /\ lock[k].st = "held" /\ Dead(proc[p], k)
    /\ Take("take", p, k)
    /\ UNCHANGED proc /\ Still

Grant(p, k) ==
    LET m == proc[p]  l == m.on[k]
        holds == IF Own(l.under) THEN ~Over(l.age) ELSE Open(m, l.under) IN
    /\ l.at = "wait" /\ l.got # 0
    /\ holds \/ l.under # None
    /\ Turns(p, [Ended(m, k, IF holds THEN "hold" ELSE "done") EXCEPT !.on[k].tok = l.got])
    /\ net' = Forgotten(p, k)
    /\ last' = IF holds THEN [last EXCEPT ![k] = l.got] ELSE last
    /\ UNCHANGED <<lock, ses>>

GiveUp(p, k) ==
    LET l == proc[p].on[k] IN
    /\ l.at = "wait"
    /\ "give up" \in Uses \/ (l.under # None /\ proc[p].up # "open")
    /\ Turns(p, Ended(proc[p], k, "idle"))
    /\ net' = Forgotten(p, k)
    /\ Still

Held(p, k) == lock[k].st = "held" /\ lock[k].tok = proc[p].on[k].tok
Heartbeat(p, k) ==
    LET l == proc[p].on[k] IN
    /\ "beat" \in Uses
    /\ l.at = "hold" /\ l.under = None /\ Held(p, k) /\ ~Over(l.age)
    /\ net' = net \cup {Write("beat", k, p, None, 0)}
    /\ UNCHANGED proc /\ Still
Beaten(p, k) ==
    LET l == proc[p].on[k] IN
    /\ l.at = "hold" /\ l.under = None /\ Held(p, k)
    /\ ~Over(l.age) /\ lock[k].age < l.age
    /\ Turns(p, [proc[p] EXCEPT !.on[k].age = lock[k].age])
    /\ UNCHANGED net /\ Still
ExpireLock(p, k) ==
    LET l == proc[p].on[k] IN
    /\ l.at = "hold" /\ Own(l.under) /\ ~Over(l.age) /\ l.age >= Shortest(Window)
    /\ Turns(p, [proc[p] EXCEPT !.on[k].age = Old])
    /\ UNCHANGED net /\ Still

Return(p, k) ==
    /\ proc[p].on[k].at = "hold"
    /\ Turns(p, [proc[p] EXCEPT !.on[k].at = "done", !.on[k].age = Old])
    /\ UNCHANGED net /\ Still
Release(p, k) ==
    /\ proc[p].on[k].at = "done" /\ Held(p, k)
    /\ net' = net \cup {Write("free", k, p, None, Old)}
    /\ UNCHANGED proc /\ Still

Rest(p, k) ==
    /\ proc[p].on[k].at = "done"
    /\ Turns(p, Ended(proc[p], k, "idle"))
    /\ UNCHANGED net /\ Still

Crash(p) ==
    /\ "crash" \in Uses /\ proc[p] # [Fresh EXCEPT !.n = proc[p].n]
    /\ Turns(p, [Fresh EXCEPT !.n = proc[p].n])
    /\ net' = {IF w.by = p /\ w.me THEN [w EXCEPT !.me = FALSE, !.age = Old] ELSE w : w \in net}
    /\ Still

-----------------------------------------------------------------------------
Later(m, d) ==
    LET at(age) == IF Over(Aged(age, d)) THEN Old ELSE Aged(age, d) IN
    [m EXCEPT !.since = at(@),
              !.on = [k \in Keys |-> [@[k] EXCEPT !.age = at(@),
                                                 !.saw = IF lock[k].ses = None THEN Aged(@, d) ELSE @]],
              !.knows = [s \in Ids |-> Aged(@[s], d)]]
Counted(s) == LET m == proc[s[1]] IN m.id = s /\ (m.up = "opening" \/ (m.up \in {"open", "stop"} /\ ~Over(m.since)))
Late(w, d) == w.k \in {"renew", "beat"} /\ (Over(Aged(w.age, d)) \/ (w.k = "renew" /\ ~Counted(w.ses)))
Pass(d) ==
    LET at(age, s) == IF s = None \/ Counted(s) THEN Aged(age, d) ELSE Old IN
    /\ lock' = [k \in Keys |-> [lock[k] EXCEPT !.age = Aged(@, d)]]
    /\ ses' = [s \in Ids |-> [ses[s] EXCEPT !.age = at(@, s)]]
    /\ net' = {[w EXCEPT !.age = IF OfLock(w) THEN Aged(@, d) ELSE at(@, w.ses)] : w \in {u \in net : ~Late(u, d)}}
    /\ proc' = [p \in Procs |-> Later(proc[p], d)]
    /\ UNCHANGED last

Init ==
    /\ lock = [k \in Keys |-> NoLock]
    /\ ses = [s \in Ids |-> Unopened]
    /\ net = {}
    /\ proc = [p \in Procs |-> Fresh]
    /\ last = [k \in Keys |-> 0]

Acts(p) ==
    \/ Begin(p) \/ Confirm(p) \/ Leave(p) \/ Renew(p) \/ Renewed(p) \/ Expire(p)
    \/ Stop(p) \/ Done(p) \/ Close(p) \/ Disclaim(p)
    \/ \E k \in Keys :
        \/ Acquire(p, k) \/ Claim(p, k) \/ ReleaseOrphan(p, k) \/ Look(p, k) \/ Takeover(p, k) \/ Grant(p, k) \/ GiveUp(p, k)
        \/ Heartbeat(p, k) \/ Beaten(p, k) \/ ExpireLock(p, k) \/ Return(p, k) \/ Release(p, k) \/ Rest(p, k)
        \/ \E s \in Ids : Inquire(p, k, s)
    \/ \E s \in Ids : Peek(p, s) \/ Stale(p, s) \/ CloseDead(p, s)
    \/ Crash(p)

Next ==
    \/ Pass(Tick)
    \/ \E w \in net : ApplyLock(w) \/ ApplySession(w)
    \/ \E s \in Ids : Delete(s)
    \/ \E p \in Procs : Acts(p)

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
(* Properties: README.md.                                                    *)

OneHolder == \A k \in Keys, p, q \in Procs : Believes(p, k) /\ Believes(q, k) => p = q

OneAtWork == \A k \in Keys, p, q \in Procs : Works(p, k) /\ Works(q, k) => p = q

Guarded ==
    \A k \in Keys, p \in Procs : Works(p, k) =>
        LET r == lock[k] IN
        /\ r.st = "held" /\ r.tok = proc[p].on[k].tok /\ r.ses = proc[p].on[k].under
        /\ r.ses # None => ses[r.ses].st = "alive"

GrantsRise == [][\A k \in Keys : last'[k] # last[k] => last'[k] > last[k]]_vars

TokensRise == [][\A k \in Keys : lock'[k].tok >= lock[k].tok]_vars

ClosedStays ==
    [][\A s \in Ids : ses[s].st \in {"closed", "deleted"} => ses'[s].st \in {"closed", "deleted"}]_vars

TakenFromDead ==
    [][\A k \in Keys : LET r == lock[k] IN
        r.st = "held" /\ r.ses # None /\ lock'[k].tok # r.tok => ses[r.ses].st # "alive"]_vars

-----------------------------------------------------------------------------
(* Reached: reached-*.cfg.                                                   *)

NeverOrphan ==
    ~\E k \in Keys, p \in Procs :
        LET m == proc[p] IN
        m.up = "open" /\ ~Over(m.since) /\ lock[k].st = "held" /\ lock[k].ses = m.id /\ ~Mine(m, k)

NeverLate ==
    ~\E k \in Keys, p \in Procs :
        LET l == proc[p].on[k] IN
        l.at = "wait" /\ l.got # 0 /\ l.got = lock[k].tok /\ l.under # None /\ ses[l.under].st = "closed"

NeverBeside ==
    ~\E k \in Keys, p, q \in Procs :
        LET l == proc[q].on[k] IN
        p # q /\ Believes(p, k) /\ l.at = "hold" /\ l.under # None /\ ses[l.under].st = "closed"

NeverGone == ~\E k \in Keys, p \in Procs, s \in Ids : Asks(p, k, s) /\ proc[p].knows[s] = Gone

NeverNext ==
    ~\E k \in Keys, p \in Procs :
        Believes(p, k) /\ proc[p].on[k].under # None /\ \E s \in Ids \ {proc[p].on[k].under} : ses[s].st = "closed"

NeverTwo == ~\E k, l \in Keys, p \in Sessioned : k # l /\ Believes(p, k) /\ Believes(p, l)

Symmetry == Permutations(Procs)
SameKeys == Permutations(Keys)

After == \A k \in Keys, p \in Alone : proc[p].on[k].at # "idle" => lock[k].tok > 0
=============================================================================
