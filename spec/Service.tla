------------------------------- MODULE Service -------------------------------
(* SPDX-FileCopyrightText: The Tenure Authors                               *)
(* SPDX-License-Identifier: Apache-2.0                                      *)
(*                                                                          *)
(* The lock service: clients, stateless replicas, one store, and networks   *)
(* on both sides of the replicas that lose, delay and repeat messages.      *)
EXTENDS Integers, TLC

CONSTANTS
    Clients,     \* processes that want the lock
    None,
    Lease, DriftNum, DriftDen, Tick, MaxToken,
    ClientNum,   \* a client's clock errs by ClientNum/DriftDen, a replica's by DriftNum/DriftDen
    MaxAcquires, \* acquires of a client that are carried out
    MaxBeats,    \* heartbeats of a term
    Prompt,      \* TRUE: replicas and the store act before time passes
    Uses, Wrong

VARIABLES
    store,
    net,
    acq,         \* acquires: what replicas do for each, and the calls under it
    cli,
    mem,         \* a replica's or proxy's memory, for mistakes
    past

vars == <<store, net, acq, cli, mem, past>>

-----------------------------------------------------------------------------
(* Time, as in Tenure.tla, without a grace.                                  *)

Shortest(d) == (d * DriftDen) \div (DriftDen + DriftNum)
Longest(d)  == (d * DriftDen + DriftDen - DriftNum - 1) \div (DriftDen - DriftNum)
FreeAfter == Lease \div 3

Max(a, b) == IF a > b THEN a ELSE b
Min(a, b) == IF a < b THEN a ELSE b

\* The bound in the record, and when the window has passed by a client's clock.
GrantNum == IF "a grant for the replica's clock" \in Wrong THEN DriftNum ELSE Max(DriftNum, ClientNum)
Window   == (Lease * (DriftDen - GrantNum)) \div (DriftDen + GrantNum)
Earliest == (Window * DriftDen) \div (DriftDen + ClientNum)
Latest   == (Window * DriftDen + DriftDen - ClientNum - 1) \div (DriftDen - ClientNum)

Old == Max(Latest, IF Prompt THEN Longest(Lease) ELSE Shortest(Lease))
Aged(a, d) == IF a < 0 THEN a ELSE Min(a + d, Old)
Over(age) == age >= Latest

-----------------------------------------------------------------------------
(* An acquire is <<client, number>>, a beat the acquire and a count (own,    *)
(* n). Heartbeat n makes beat n+1 of beat n. req: the holder was asked to    *)
(* step down.                                                                *)

Acquires == Clients \X (1..MaxAcquires)

Absent == [st |-> "absent", tok |-> 0, own |-> None, n |-> 0, req |-> FALSE]
Taken(s) == s.st \in {"held", "reserved"}
Sign(s) == <<s.st, s.tok, s.own, s.n>>

(* What replicas do for an acquire, and the calls under it.                  *)
(*   at    none; wait: acquires while the connection lives; offer: has       *)
(*         answered with a grant; leave: cleans up; over                     *)
(*   conn  the connection is alive, as far as the replica knows              *)
(*   saw   the age of the beat in view, or of an offer                       *)
(*   vain  how long it has waited for a lock that no client may use          *)
(*   tok   the granted token; ans: the client may still get that answer      *)
(*   may   that answer says that the client may count the grant              *)
(*   cur   it answers the client's latest call                               *)
(*   sent  heartbeats sent; rel: the beats that a release names. Any replica *)
(*         may carry out a call at any time, again and again.                *)

Unseen == -1
Unsent == [at |-> "none", conn |-> FALSE, saw |-> Unseen, vain |-> 0, tok |-> 0, ans |-> FALSE, may |-> FALSE,
           cur |-> FALSE, sent |-> 0, rel |-> {}]

(* Clients.                                                                  *)
(*   at     idle; wait: acquires; try: has a grant, which is no lease yet;   *)
(*          hold: a heartbeat was confirmed, or the grant counts             *)
(*   of, n  the granted acquire and the confirmed beat                       *)
(*   call   the call in progress: none, a heartbeat, an acquire              *)
(*   first  the age of its first attempt, or of the acquire; since: the      *)
(*          same of the last confirmed call                                  *)
(*   ans    the answers in flight                                            *)
(*   told   it knows that it was asked to step down                          *)

Idle == [at |-> "idle", of |-> None, n |-> 0, call |-> "none", first |-> 0, since |-> Old, ans |-> {}, told |-> FALSE]

Believes(c) == cli[c].at = "hold" /\ ~Over(cli[c].since)
Token(c) == acq[cli[c].of].tok

-----------------------------------------------------------------------------
(* The store.                                                                *)

Write(k, t, n) == [k |-> k, of |-> t, n |-> n]
Grows(w) == w.k \in {"claim", "take"}
Fits(w) ==
    /\ w.k = "claim" => ~Taken(store)
    /\ Grows(w) => store.tok < MaxToken
Claims == {w \in net : w.k = "claim"}

Written(w) ==
    CASE Grows(w) -> [st |-> "held", tok |-> store.tok + 1, own |-> w.of, n |-> 0, req |-> FALSE]
      [] w.k = "beat" -> [store EXCEPT !.st = "held", !.own = w.of, !.n = w.n + 1, !.req = @ /\ "drops requests" \notin Wrong]
      [] w.k = "free" -> [store EXCEPT !.st = "released", !.req = FALSE]

\* By these mistakes an acquire has an effect after its term.
Forgets == {"any token", "any beat", "over a released record", "over a reserved record"} \cap Wrong = {}
Ended(a, s) == a.tok # 0 /\ (s.tok > a.tok \/ (s.tok = a.tok /\ s.st # "held"))

\* An offer ends with the next beat.
Known(t, a, s) ==
    LET offers == s.st = "held" /\ s.tok = a.tok /\ ((s.own = t /\ s.n = 0) \/ "frees any beat" \in Wrong)
        b == IF a.at = "offer" /\ ~offers THEN [a EXCEPT !.at = "over", !.saw = Unseen, !.conn = FALSE] ELSE a
        d == Ended(b, s) /\ Forgets
        c == IF d THEN [b EXCEPT !.sent = 0, !.rel = {}, !.ans = FALSE, !.may = FALSE, !.cur = FALSE] ELSE b
        last == s.tok = MaxToken /\ a.at \in {"wait", "leave"} /\ s.own # t IN
    IF last THEN [Unsent EXCEPT !.at = "over"] ELSE
    [c EXCEPT !.saw = IF c.at = "wait" /\ Sign(s) # Sign(store) THEN 0 ELSE @,
              !.vain = IF s.tok # store.tok THEN 0 ELSE @]

Gone(a, s) == Forgets /\ a.at = "over" /\ (a.tok = 0 \/ Ended(a, s))
Left(ws, as, s) == {IF w.k = "claim" /\ w.of # None /\ Gone(as[w.of], s) THEN [w EXCEPT !.of = None] ELSE w : w \in ws}

Reply(s) == IF s.req THEN "asked" ELSE "ok"
Answered(c, t, n, what) ==
    IF cli[c].of = t /\ cli[c].call = "beat" /\ cli[c].n = n THEN [cli EXCEPT ![c].ans = @ \cup {what}] ELSE cli

Lands(w) ==
    /\ Fits(w)
    /\ store' = Written(w)
    /\ acq' = [t \in Acquires |-> Known(t, acq[t], store')]
    /\ net' = IF store'.tok = MaxToken THEN {} ELSE Left(Claims, acq', store')
    /\ cli' = IF w.k = "beat" THEN Answered(w.of[1], w.of, w.n, Reply(store')) ELSE cli
    /\ past' = IF w.k = "beat" /\ past.written = store.tok /\ past.due = 0 THEN [past EXCEPT !.due = w.n + 1] ELSE past
    /\ UNCHANGED mem

Sends(w) == net' = net \cup {w} /\ UNCHANGED <<store, acq, cli, mem, past>>
Does(w) == IF "late" \in Uses THEN Sends(w) ELSE Lands(w)
Apply(w) == w \in net /\ Lands(w)

-----------------------------------------------------------------------------
(* A replica carries out an acquire.                                         *)

Turns(t, a) == acq' = [acq EXCEPT ![t] = a]
Still == UNCHANGED <<store, mem, past>>

First(t) == store.st = "held" /\ store.own = t /\ store.n = 0

Carry(t) ==
    LET c == t[1] IN
    /\ store.tok < MaxToken
    /\ acq[t].at = "none" /\ (t[2] > 1 => acq[<<c, t[2] - 1>>].at # "none")
    /\ cli[c].at = "wait" \/ ("replay" \in Uses /\ t[2] > 1)
    /\ Turns(t, [acq[t] EXCEPT !.at = "wait", !.conn = TRUE, !.saw = 0, !.cur = "count" \in Uses /\ cli[c].at = "wait"])
    /\ UNCHANGED <<net, cli>> /\ Still

Contends(t) == acq[t].at = "wait" /\ (acq[t].conn \/ "waits on" \in Wrong)

Claim(t) ==
    /\ Contends(t) /\ ~Taken(store) /\ Write("claim", t, 0) \notin net
    /\ store.tok < MaxToken
    /\ Sends(Write("claim", t, 0))

Takeover(t) ==
    /\ Contends(t) /\ Taken(store) /\ acq[t].saw >= Shortest(Lease)
    /\ Does(Write("take", t, 0))

Grant(t) ==
    /\ Contends(t) /\ First(t)
    /\ Turns(t, [acq[t] EXCEPT !.at = "offer", !.saw = 0, !.vain = 0, !.tok = store.tok, !.ans = TRUE])
    /\ UNCHANGED <<net, cli>> /\ Still

\* Just before the answer is sent. No process but the holder frees the grant then.
Frees(t) == Write("free", t, 0)
Count(t) ==
    LET a == acq[t] IN
    /\ "count" \in Uses /\ a.at = "offer" /\ a.ans /\ ~a.may
    /\ Frees(t) \notin net \/ "counts what is being freed" \in Wrong
    /\ Turns(t, [a EXCEPT !.may = TRUE])
    /\ UNCHANGED <<net, cli>> /\ Still

HangUp(t) ==
    LET a == acq[t]
        wrote == First(t) \/ \E w \in net : w.of = t IN
    /\ a.at = "wait" /\ a.conn
    /\ wrote \/ Prompt
    /\ Turns(t, IF "waits on" \in Wrong THEN [a EXCEPT !.conn = FALSE]
                ELSE IF wrote THEN [a EXCEPT !.at = "leave", !.conn = FALSE, !.saw = Unseen, !.vain = 0]
                ELSE [Unsent EXCEPT !.at = "over"])
    /\ UNCHANGED <<net, cli>> /\ Still

\* A grant that counts for no client, and has no heartbeat, is freed after L/3.
Overdue(t, age) == Prompt => acq[t].at = "leave" \/ acq[t].saw >= age
Free(t) ==
    LET a == acq[t]
        mine == First(t) \/ ("frees any beat" \in Wrong /\ a.at = "offer") IN
    /\ a.at = "leave" \/ (a.at = "offer" /\ "keeps what is not used" \notin Wrong)
    /\ ~a.may \/ "frees a counted grant" \in Wrong
    /\ mine /\ Overdue(t, Shortest(FreeAfter))
    /\ Does(Frees(t))

Rest(t) ==
    LET a == acq[t] IN
    /\ a.at # "over"
    /\ \/ a.at = "leave" /\ ~First(t) /\ ~\E w \in net : w.of = t
       \/ a.at \in {"leave", "offer"} /\ "crash" \in Uses
    /\ Turns(t, [a EXCEPT !.at = "over", !.conn = FALSE, !.saw = Unseen])
    /\ net' = Left(net, acq', store)
    /\ UNCHANGED cli /\ Still

-----------------------------------------------------------------------------
(* Any replica carries out heartbeats and releases, from the record alone.   *)

Follows(t, n) ==
    /\ \/ store.st = "held" \/ (store.st = "released" /\ "over a released record" \in Wrong)
       \/ store.st = "reserved" /\ "over a reserved record" \in Wrong
    /\ store.tok = acq[t].tok \/ "any token" \in Wrong
    /\ \/ store.own = t /\ store.n = n
       \/ store.own = t /\ store.n # n + 1 /\ "any beat" \in Wrong
       \/ store.st = "reserved"

Heartbeat(t, n) ==
    /\ n < acq[t].sent /\ Follows(t, n)
    /\ Does(Write("beat", t, n))

\* A retry finds its own beat, and succeeds.
Repeated(t, n) ==
    /\ n < acq[t].sent
    /\ store.st = "held" /\ store.tok = acq[t].tok /\ store.own = t /\ store.n = n + 1
    /\ cli' = Answered(t[1], t, n, Reply(store)) /\ cli' # cli
    /\ UNCHANGED <<net, acq>> /\ Still

Release(t, n) ==
    /\ n \in acq[t].rel
    /\ store.st = "held" /\ store.tok = acq[t].tok /\ store.own = t /\ store.n = n
    /\ Does(Write("free", t, n))

-----------------------------------------------------------------------------
(* Operators. Their writes drop swaps in flight.                             *)

Ask ==
    /\ "ask" \in Uses /\ store.st = "held" /\ ~store.req
    /\ store' = [store EXCEPT !.req = TRUE] /\ net' = Claims
    /\ past' = [past EXCEPT !.written = store.tok, !.due = 0]
    /\ UNCHANGED <<acq, cli, mem>>

\* Reserved for nobody until the lease is over.
Revoke ==
    /\ "revoke" \in Uses /\ store.st = "held"
    /\ store' = [store EXCEPT !.st = "reserved", !.own = None, !.n = 0, !.req = FALSE]
    /\ acq' = [t \in Acquires |-> Known(t, acq[t], store')]
    /\ net' = Left(Claims, acq', store')
    /\ UNCHANGED <<cli, mem, past>>

-----------------------------------------------------------------------------
(* Clients.                                                                  *)

Becomes(c, m) == cli' = [cli EXCEPT ![c] = m]
Called(t, a) == acq' = [acq EXCEPT ![t] = Known(t, a, store)]

Acquire(c) ==
    /\ cli[c].at = "idle" /\ acq[<<c, MaxAcquires>>].at = "none" /\ store.tok < MaxToken
    /\ Becomes(c, [Idle EXCEPT !.at = "wait"])
    /\ acq' = [t \in Acquires |-> IF t[1] = c THEN [acq[t] EXCEPT !.cur = FALSE] ELSE acq[t]]
    /\ UNCHANGED net /\ Still

\* A grant is no lease,
Accept(c, t) ==
    /\ cli[c].at = "wait" /\ t[1] = c /\ acq[t].ans
    /\ Becomes(c, [Idle EXCEPT !.at = "try", !.of = t])
    /\ Turns(t, [acq[t] EXCEPT !.ans = FALSE, !.cur = FALSE])
    /\ UNCHANGED <<store, net, mem, past>>

\* unless it answers the latest call, and says that it may be counted: from before that call was sent.
\* The client may think that the answer comes too late, and accept it as above.
AcceptCounted(c, t) ==
    LET from == IF "counts a grant from its answer" \in Wrong THEN 0 ELSE cli[c].first IN
    /\ "count" \in Uses /\ cli[c].at = "wait" /\ t[1] = c /\ acq[t].ans
    /\ acq[t].may \/ "counts any grant" \in Wrong
    /\ acq[t].cur \/ "counts the grant of an earlier call" \in Wrong
    /\ ~Over(from)
    /\ Becomes(c, [Idle EXCEPT !.at = "hold", !.of = t, !.since = from])
    /\ acq' = [u \in Acquires |-> [(IF u = t THEN [acq[t] EXCEPT !.ans = FALSE, !.cur = FALSE] ELSE acq[u]) EXCEPT !.vain = 0]]
    /\ past' = [past EXCEPT !.last = acq[t].tok]
    /\ UNCHANGED <<store, net, mem>>

\* The clock is read before the call.
Beat(c) ==
    LET m == cli[c] IN
    /\ m.at = "try" \/ Believes(c)
    /\ m.call = "none" /\ m.n < MaxBeats
    /\ Becomes(c, [m EXCEPT !.call = "beat", !.first = 0])
    /\ Called(m.of, [acq[m.of] EXCEPT !.sent = Max(@, m.n + 1)])
    /\ UNCHANGED net /\ Still

Again(c) ==
    LET m == cli[c] IN
    /\ "counts from the repeated call" \in Wrong /\ m.call = "beat" /\ m.first > 0
    /\ Becomes(c, [m EXCEPT !.first = 0])
    /\ UNCHANGED <<net, acq>> /\ Still

\* The lease counts from before the first attempt. Expiry is final.
Confirm(c, a) ==
    LET m == cli[c]
        from == IF "counts from the answer" \in Wrong THEN 0 ELSE m.first
        final == m.at = "hold" /\ Over(m.since) /\ "expired renews" \notin Wrong
        since == IF final \/ Over(from) THEN Old ELSE from IN
    /\ a \in m.ans
    /\ Becomes(c, [m EXCEPT !.at = "hold", !.n = IF m.call = "beat" THEN @ + 1 ELSE @, !.call = "none", !.first = 0,
                            !.since = since, !.ans = {}, !.told = @ \/ a = "asked"])
    /\ past' = IF m.at = "try" /\ ~Over(since) THEN [past EXCEPT !.last = Token(c)] ELSE past
    /\ mem' = IF "caches" \in Wrong THEN [mem EXCEPT !.tok = Token(c)] ELSE mem
    /\ acq' = [t \in Acquires |-> [acq[t] EXCEPT !.vain = IF Over(since) THEN @ ELSE 0]]
    /\ UNCHANGED <<store, net>>

\* The answer is "lost", and final: neither beat is there.
Lose(c) ==
    LET m == cli[c] IN
    /\ m.call = "beat"
    /\ ~(store.st = "held" /\ store.tok = Token(c) /\ store.own = m.of /\ store.n \in {m.n, m.n + 1})
    /\ Becomes(c, Idle)
    /\ UNCHANGED <<net, acq>> /\ Still

Expire(c) ==
    /\ Believes(c) /\ cli[c].since >= Earliest
    /\ Becomes(c, [cli[c] EXCEPT !.since = Old])
    /\ UNCHANGED <<net, acq>> /\ Still

\* It releases the newest beat sent, then the confirmed one, and never acts again.
Return(c) ==
    LET m == cli[c]
        newest == IF m.call = "beat" THEN {m.n, m.n + 1} ELSE {m.n} IN
    /\ m.at \in {"try", "hold"}
    /\ ~(newest \subseteq acq[m.of].rel)
    /\ Becomes(c, IF "acts after a 5xx" \in Wrong /\ m.at = "hold" THEN m ELSE Idle)
    /\ Called(m.of, [acq[m.of] EXCEPT !.rel = @ \cup newest])
    /\ UNCHANGED net /\ Still

Stop(c) ==
    /\ cli[c].at # "idle"
    /\ Becomes(c, Idle)
    /\ UNCHANGED <<net, acq>> /\ Still

-----------------------------------------------------------------------------
(* Mistakes of servers and proxies.                                          *)

Remember ==
    /\ "answers from memory" \in Wrong /\ mem.rec # store
    /\ mem' = [mem EXCEPT !.rec = store]
    /\ UNCHANGED <<store, net, acq, cli, past>>
Recall(t, n) ==
    /\ "answers from memory" \in Wrong /\ n < acq[t].sent
    /\ mem.rec.st = "held" /\ mem.rec.tok = acq[t].tok /\ mem.rec.own = t /\ mem.rec.n = n
    /\ cli' = Answered(t[1], t, n, Reply(mem.rec))
    /\ mem' = [mem EXCEPT !.rec.n = n + 1]
    /\ UNCHANGED <<store, net, acq, past>>

\* A proxy answers a heartbeat that is a GET from its cache.
FromCache(c) ==
    /\ "caches" \in Wrong /\ cli[c].call = "beat" /\ mem.tok = Token(c)
    /\ Becomes(c, [cli[c] EXCEPT !.ans = @ \cup {"ok"}])
    /\ UNCHANGED <<net, acq>> /\ Still

\* A holder repeats its acquire, and counts from before sending that.
Reacquire(c) ==
    /\ "an acquire renews" \in Wrong /\ Believes(c) /\ cli[c].call = "none"
    /\ Becomes(c, [cli[c] EXCEPT !.call = "acquire", !.first = 0])
    /\ UNCHANGED <<net, acq>> /\ Still
Regrant(c) ==
    /\ cli[c].call = "acquire" /\ store.st = "held" /\ store.own = cli[c].of
    /\ Becomes(c, [cli[c] EXCEPT !.ans = {"ok"}])
    /\ UNCHANGED <<net, acq>> /\ Still

-----------------------------------------------------------------------------
(* Time. With prompt replicas it passes only when there is nothing to do.    *)

Quick ==
    /\ \A w \in net : ~Fits(w)
    /\ \A t \in Acquires :
        /\ ~ENABLED Grant(t) /\ ~ENABLED Claim(t)
        /\ ENABLED Takeover(t) => acq[t].saw < Longest(Lease)
        /\ ENABLED Free(t) => ~Overdue(t, Longest(FreeAfter))

Later(t, d) ==
    LET a == acq[t]
        unused == Taken(store) /\ ~\E c \in Clients : Believes(c) IN
    [a EXCEPT !.saw = IF a.at = "wait" \/ Prompt THEN Aged(@, d) ELSE @,
              !.vain = IF Prompt /\ a.at = "wait" /\ a.conn /\ unused THEN Min(@ + d, 2 * Longest(Lease) + Tick) ELSE 0]
Elapsed(m, d) ==
    LET at(age) == IF Over(Aged(age, d)) THEN Old ELSE Aged(age, d)
        final == m.at = "hold" /\ Over(Aged(m.since, d)) /\ "expired renews" \notin Wrong IN
    [m EXCEPT !.first = IF m.call = "none" /\ ~(m.at = "wait" /\ "count" \in Uses) THEN 0 ELSE IF final THEN Old ELSE at(@),
              !.since = IF m.at = "hold" THEN at(@) ELSE @]
Nobodys(t) == Prompt /\ First(t) /\ acq[t].at \in {"wait", "offer", "leave"} /\ ~acq[t].conn
Pass(d) ==
    /\ Prompt => Quick
    /\ acq' = [t \in Acquires |-> Later(t, d)]
    /\ cli' = [c \in Clients |-> Elapsed(cli[c], d)]
    /\ net' = IF Prompt THEN {} ELSE net
    /\ past' = [past EXCEPT !.idle = @ \/ \E t \in Acquires : Nobodys(t)]
    /\ UNCHANGED <<store, mem>>

Init ==
    /\ store = Absent
    /\ net = {}
    /\ acq = [t \in Acquires |-> Unsent]
    /\ cli = [c \in Clients |-> Idle]
    /\ mem = [rec |-> Absent, tok |-> 0]
    /\ past = [last |-> 0, written |-> 0, due |-> 0, idle |-> FALSE]

Next ==
    \/ Pass(Tick)
    \/ \E w \in net : Apply(w)
    \/ Ask \/ Revoke \/ Remember
    \/ \E t \in Acquires :
        \/ Carry(t) \/ Claim(t) \/ Takeover(t) \/ Grant(t) \/ Count(t) \/ HangUp(t) \/ Free(t) \/ Rest(t)
        \/ \E n \in 0..MaxBeats : Heartbeat(t, n) \/ Repeated(t, n) \/ Release(t, n) \/ Recall(t, n)
    \/ \E c \in Clients :
        \/ Acquire(c) \/ Beat(c) \/ Again(c) \/ Lose(c) \/ Expire(c) \/ Return(c) \/ Stop(c)
        \/ FromCache(c) \/ Reacquire(c) \/ Regrant(c)
        \/ \E t \in Acquires : Accept(c, t) \/ AcceptCounted(c, t)
        \/ \E a \in {"ok", "asked"} : Confirm(c, a)

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
(* Properties: README.md.                                                    *)

OneHolder == \A c, d \in Clients : Believes(c) /\ Believes(d) => c = d

Guarded ==
    \A c \in Clients : Believes(c) =>
        Taken(store) /\ store.tok = Token(c) /\ (store.st = "held" => store.own = cli[c].of)

GrantsRise == [][past'.last # past.last => past'.last > past.last]_vars

TokensRise == [][store'.tok >= store.tok]_vars

EndedStays == [][store.st \in {"released", "reserved"} => Sign(store') = Sign(store) \/ store'.tok > store.tok]_vars

ExpiredStays ==
    [][\A c \in Clients :
        LET m == cli[c]  n == cli'[c] IN
        m.at = "hold" /\ Over(m.since) /\ n.at = "hold" /\ n.of = m.of => Over(n.since)]_vars

RequestStays == [][store.req /\ store'.st = "held" /\ store'.tok = store.tok => store'.req]_vars

Told ==
    \A c \in Clients :
        cli[c].at = "hold" /\ Token(c) = past.written /\ past.due # 0 /\ cli[c].n >= past.due => cli[c].told

(* If replicas are prompt:                                                   *)

Freed == \A t \in Acquires : acq[t].vain <= 2 * Longest(Lease)

UnusedFreed == \A t \in Acquires : acq[t].at = "offer" /\ ~acq[t].may => acq[t].saw <= Longest(FreeAfter)

Wanted == ~past.idle

-----------------------------------------------------------------------------
(* Reached: reached-*.cfg.                                                   *)

NeverBelieves == \A c \in Clients : ~Believes(c)

NeverCounts == \A c \in Clients : Believes(c) => cli[c].n > 0

NeverBeside == ~\E c, d \in Clients : Believes(c) /\ c # d /\ cli[d].at = "hold" /\ Over(cli[d].since)

NeverFreed ==
    [][\A t \in Acquires :
        acq[t].at = "offer" /\ acq[t].sent = 0 /\ acq[t].rel = {} /\ First(t) => store'.st # "released"]_vars

NeverTold == ~\E c \in Clients : Believes(c) /\ cli[c].told

NeverTwice == ~\E c \in Clients : cli[c].ans = {"ok", "asked"}

NeverReopened == ~(store.st = "held" /\ store.own = None)

NeverLate == \A t \in Acquires : acq[t].vain <= Longest(Lease)

Symmetry == Permutations(Clients)
=============================================================================
