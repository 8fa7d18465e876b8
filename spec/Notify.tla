-------------------------------- MODULE Notify --------------------------------
(* SPDX-FileCopyrightText: The Tenure Authors                               *)
(* SPDX-License-Identifier: Apache-2.0                                      *)
(*                                                                          *)
(* Notifications, internal/notification: waiters tell the holder that they  *)
(* wait (Wait), and it notifies them when the lock is free (Notify). A      *)
(* requester tells it of a request in the record (Asked). A tick is the     *)
(* least time between two hints. All clocks run right, reads and claims     *)
(* take no time.                                                            *)
EXTENDS Integers

CONSTANTS
    Waiters,  \* numbered from 1; the holder is 0 and takes notifications
    Notified, \* those of them that take notifications, too
    L,
    R,        \* the most time between two reads
    H,        \* the heartbeat period, for requests
    W,        \* the period of a waiter's messages: L/3 in the code
    Uses,     \* "beat", "release", "hand over", "die", "late", "ask", "lose", "double", "forge"
    Wrong

VARIABLES
    store,
    net,
    hold,
    wait,
    ask,
    past

vars == <<store, net, hold, wait, ask, past>>

Min(a, b) == IF a < b THEN a ELSE b
None == -1   \* no address
Never == -1  \* the age of what has not happened
Third == 9   \* a process that does not wait

Old == L + R + 1
Aged(a) == IF a = Never THEN Never ELSE Min(a + 1, Old)

(* A version is all of a record but the age of its state or beat.            *)

Version(r) == [st |-> r.st, own |-> r.own, addr |-> r.addr, beat |-> r.beat, req |-> r.req]
Sign(r) == <<r.st, r.own, r.beat>>

(* The holder.                                                               *)
(*   work    holds the lock                                                  *)
(*   leaves  has stopped; its release or hand-over is in flight              *)
(*   over                                                                    *)
(*   dead                                                                    *)
(* made: its latest beat. out: a heartbeat is in flight, sent outAt ago.     *)
(* sent: the age of the lease. knows: it has found the request. heard: how   *)
(* long ago each waiter repeated the word. hurry, hurried: an early          *)
(* heartbeat is due, was sent in this tick. free: the final write. tries:    *)
(* how often it had no reply.                                                *)

(* A waiter.                                                                 *)
(* shown: the version last read. since: how long it has been unchanged.      *)
(* looked: the age of that read. to: the holder it tells, last sent ago.     *)
(* fresh: it tells at once. echo: it repeats the word. known: the holder has *)
(* answered. notified, hinted: a hinted read is due, was made in this tick. free *)
(* serves a mistake.                                                         *)

Believes == hold.at = "work" /\ hold.sent < L
Waits(p) == store.st # "held" \/ store.own # p
Open == Waiters = {} \/ \E p \in Waiters : Waits(p)

\* Forged messages cover late, repeated and lost ones.
Forged == "forge" \in Uses
Sent(ms) == net' = IF Forged THEN net ELSE net \cup ms
Got(m) == m \in net /\ net' = net \ {m}
Message(k, p, word) == [k |-> k, p |-> p, word |-> word]

-----------------------------------------------------------------------------
(* The holder and the store. Unless "late" is in Uses, a write is applied    *)
(* and answered before time passes.                                          *)

Late == "late" \in Uses
Held == store.st = "held" /\ store.own = 0

FreshBeat == CHOOSE b \in 0..3 : b # store.beat /\ \A p \in Waiters : b # wait[p].shown.beat
CanBeat == hold.at = "work" /\ ~hold.out
Beats == [hold EXCEPT !.made = FreshBeat, !.out = TRUE, !.outAt = 0]
Send ==
    /\ "beat" \in Uses /\ CanBeat /\ hold.outAt > 0
    /\ hold' = Beats
    /\ UNCHANGED <<store, net, wait, ask, past>>

CanHurry == CanBeat /\ Believes /\ hold.hurry /\ (~hold.hurried \/ "beats" \in Wrong)
Hurry ==
    /\ CanHurry
    /\ hold' = [Beats EXCEPT !.hurry = FALSE, !.hurried = TRUE]
    /\ past' = [past EXCEPT !.beats = Min(2, @ + 1)]
    /\ UNCHANGED <<store, net, wait, ask>>

Fits == Held /\ store.req = hold.knows
Apply ==
    /\ hold.out /\ Fits /\ store.beat # hold.made
    /\ store' = [store EXCEPT !.beat = hold.made, !.at = 0]
    /\ UNCHANGED <<net, hold, wait, ask, past>>
Confirm ==
    /\ hold.at = "work" /\ hold.out /\ Held /\ store.beat = hold.made
    /\ hold' = [hold EXCEPT !.out = FALSE, !.sent = hold.outAt]
    /\ UNCHANGED <<store, net, wait, ask, past>>

\* The deadline stays.
Collide ==
    /\ hold.at = "work" /\ hold.out /\ Held /\ store.req # hold.knows
    /\ hold' = [hold EXCEPT !.out = FALSE, !.knows = TRUE]
    /\ past' = [past EXCEPT !.hurried = hold.hurried]
    /\ UNCHANGED <<store, net, wait, ask>>

Die ==
    /\ "die" \in Uses /\ hold.at \in {"work", "leaves"}
    /\ hold' = [hold EXCEPT !.at = "dead", !.sent = 0, !.outAt = 0, !.hurry = FALSE]
    /\ UNCHANGED <<store, net, wait, ask, past>>

ToNotify == {Message("notify", p, FALSE) : p \in {q \in DOMAIN hold.heard : hold.heard[q] # Never}}
NotifyIf(yes) == Sent(IF yes THEN ToNotify ELSE {})

\* Waiters that know they will be notified.
Told == {p \in Waiters : wait[p].to = 0 /\ wait[p].echo /\ wait[p].known}

\* The mistake notifies before the release is applied.
Leave(how) ==
    /\ how \in Uses /\ hold.at = "work" /\ ~hold.out
    /\ "early" \in Wrong => Told = Waiters
    /\ hold' = [hold EXCEPT !.at = "leaves", !.free = how, !.sent = 0, !.outAt = 0, !.hurry = FALSE]
    /\ NotifyIf("early" \in Wrong)
    /\ UNCHANGED <<store, wait, ask, past>>

\* Stores reject an address without a holder.
Keeps == "kept" \in Wrong \/ "kept unguarded" \in Wrong
Takes(w) == w # "none" /\ Fits /\ "kept" \notin Wrong
Free ==
    /\ Takes(hold.free)
    /\ store' = [store EXCEPT
        !.st = IF hold.free = "release" THEN "released" ELSE "reserved",
        !.own = IF hold.free = "release" THEN 0 ELSE 1,
        !.addr = IF Keeps THEN @ ELSE None, !.req = FALSE, !.at = 0]
    /\ hold' = [hold EXCEPT !.free = "none"]
    /\ UNCHANGED <<net, wait, ask, past>>

\* From now on, Prompt expects a takeover.
Owes == IF past.owed = Never /\ ~Held /\ Told # {} /\ (store.st = "reserved" => 1 \in Told) THEN 0 ELSE past.owed

Freed ==
    /\ hold.at = "leaves" /\ (~Held \/ "kept" \in Wrong)
    /\ hold' = [hold EXCEPT !.at = "over"]
    /\ past' = [past EXCEPT !.owed = Owes]
    /\ NotifyIf("early" \notin Wrong /\ store.st # "held")
    /\ UNCHANGED <<store, wait, ask>>
Unknown ==
    /\ Late /\ hold.at = "leaves"
    /\ hold' = [hold EXCEPT !.tries = @ + 1, !.at = IF hold.tries = 1 THEN "over" ELSE @]
    /\ past' = [past EXCEPT !.owed = Owes]
    /\ NotifyIf("early" \notin Wrong /\ "unknown" \notin Wrong)
    /\ UNCHANGED <<store, wait, ask>>

-----------------------------------------------------------------------------
(* Messages to the holder.                                                   *)

Answers == hold.at \in {"work", "leaves"}

\* The word proves a waiter's address.
HearsWait(p, word) ==
    IF ~Answers THEN UNCHANGED hold
    ELSE hold' = [hold EXCEPT
        !.heard[p] = IF word \/ "no word" \in Wrong THEN 0 ELSE @,
        !.sent = IF "wait confirms" \in Wrong THEN 0 ELSE @]

\* A message too soon after another is deferred.
HearsAsked ==
    hold' = [hold EXCEPT
        !.hurry = @ \/ (Believes /\ ("dropped" \notin Wrong \/ ~hold.hurried)),
        !.sent = IF "asked confirms" \in Wrong /\ Believes THEN 0 ELSE @]

-----------------------------------------------------------------------------
(* Waiters.                                                                  *)

AddrOf(p, r) == IF p \in Notified /\ (r.st = "held" \/ "kept unguarded" \in Wrong) THEN r.addr ELSE None

Saw(p) ==
    LET w == wait[p]
        to == IF "former" \in Wrong /\ w.to # None /\ store.st = "held" THEN w.to ELSE AddrOf(p, store)
        v == [w EXCEPT !.shown = Version(store), !.looked = 0, !.since = IF Sign(store) = Sign(w.shown) THEN @ ELSE 0]
    IN IF to = w.to THEN v
       ELSE [v EXCEPT !.to = to, !.echo = FALSE, !.sent = 0, !.fresh = to # None, !.known = FALSE, !.notified = FALSE,
                       !.hinted = @ /\ "hinted again" \notin Wrong]

Pace(p) ==
    IF \/ "unanswered" \in Wrong /\ wait[p].to # None
       \/ "answered" \in Wrong /\ wait[p].to # None /\ wait[p].known
    THEN L ELSE R
LookDue(p) == wait[p].looked >= Pace(p)

\* Hints cover early reads.
Look(p) ==
    /\ Waits(p) /\ wait[p].looked > 0
    /\ LookDue(p) \/ (wait[p].looked < R /\ ~Forged /\ "double" \notin Uses)
    /\ wait' = [wait EXCEPT ![p] = Saw(p)]
    /\ UNCHANGED <<store, net, hold, ask, past>>

HintDue(p) == wait[p].notified /\ (~wait[p].hinted \/ "hints" \in Wrong)
Hinted(p) ==
    /\ Waits(p) /\ HintDue(p)
    /\ wait' = [wait EXCEPT ![p] = [Saw(p) EXCEPT !.notified = FALSE, !.hinted = TRUE]]
    /\ past' = [past EXCEPT !.looks[p] = Min(2, @ + 1), !.vain = @ \/ (Held /\ hold.tries > 0 /\ ~Forged)]
    /\ UNCHANGED <<store, net, hold, ask>>

\* A hint, deferred likewise.
HearsNotify(p) ==
    LET w == wait[p] IN
    IF w.to = None \/ ~Waits(p) THEN UNCHANGED wait
    ELSE wait' = [wait EXCEPT ![p] = [w EXCEPT
        !.notified = @ \/ "dropped" \notin Wrong \/ ~w.hinted,
        !.since = IF "a read" \in Wrong THEN 0 ELSE @,
        !.free = "free" \in Wrong]]

\* The answer to the repeated word promises a notification.
HearsAck(p, echo) ==
    LET w == wait[p]
        v == [w EXCEPT !.since = IF "life" \in Wrong THEN 0 ELSE @] IN
    IF w.to = None \/ ~Waits(p) THEN UNCHANGED wait
    ELSE wait' = [wait EXCEPT ![p] = IF w.echo THEN [v EXCEPT !.known = TRUE] ELSE [v EXCEPT !.echo = TRUE, !.fresh = TRUE]]

TellDue(p) ==
    LET w == wait[p] IN
    /\ w.to # None /\ ~Forged
    /\ w.fresh \/ (w.sent >= (IF w.known THEN W ELSE Min(R, W)) /\ ("once" \in Wrong => ~w.known))
Tell(p) ==
    /\ Waits(p) /\ TellDue(p)
    /\ wait' = [wait EXCEPT ![p] = [@ EXCEPT !.sent = 0, !.fresh = FALSE, !.known = FALSE]]
    /\ Sent(IF wait[p].to = 0 THEN {Message("wait", p, wait[p].echo)} ELSE {})
    /\ UNCHANGED <<store, hold, ask, past>>

Silent(p) == "silence" \in Wrong /\ wait[p].to = 0 /\ ~wait[p].known /\ wait[p].sent > 0
MayTake(p) ==
    LET w == wait[p] IN
    \/ w.shown.st = "released"
    \/ w.shown.st = "reserved" /\ w.shown.own = p
    \/ w.shown.own = 0 /\ w.shown.st = "held" /\ w.since >= L
    \/ w.shown.st = "reserved" /\ w.since >= L
    \/ w.free \/ Silent(p)
Take(p) ==
    /\ Waits(p) /\ MayTake(p) /\ wait[p].shown = Version(store)
    /\ store' = [store EXCEPT
        !.st = "held", !.own = p, !.req = FALSE, !.at = 0,
        !.addr = IF p \in Notified THEN p ELSE IF "inherited" \in Wrong THEN @ ELSE None]
    /\ wait' = [wait EXCEPT ![p].to = None]
    /\ past' = [past EXCEPT !.took = IF @ # "none" THEN @ ELSE IF wait[p].hinted THEN "notified" ELSE "looked"]
    /\ UNCHANGED <<net, hold, ask>>
Beaten(p) ==
    /\ Waits(p) /\ MayTake(p) /\ wait[p].shown # Version(store)
    /\ wait' = [wait EXCEPT ![p] = [Saw(p) EXCEPT !.free = FALSE]]
    /\ UNCHANGED <<store, net, hold, ask, past>>

-----------------------------------------------------------------------------
(* The requester.                                                            *)

Called == {Message("asked", 0, FALSE)}
Ask ==
    /\ "ask" \in Uses /\ ask = "idle" /\ Held
    /\ ask' = "sent"
    /\ Sent(IF "asked early" \in Wrong /\ store.addr = 0 THEN Called ELSE {})
    /\ UNCHANGED <<store, hold, wait, past>>
Asks ==
    /\ ask = "sent" /\ Held /\ ~store.req
    /\ store' = [store EXCEPT !.req = TRUE]
    /\ past' = [past EXCEPT !.asked = 0]
    /\ UNCHANGED <<net, hold, wait, ask>>
Asked ==
    /\ ask = "sent" /\ store.req
    /\ ask' = "done"
    /\ past' = [past EXCEPT !.called = 0]
    /\ Sent(IF "asked early" \notin Wrong /\ store.addr = 0 THEN Called ELSE {})
    /\ UNCHANGED <<store, hold, wait>>

-----------------------------------------------------------------------------
(* Messages.                                                                 *)

Arrives(m) ==
    /\ CASE m.k = "wait" ->
            /\ HearsWait(m.p, m.word)
            /\ net' = (net \ {m}) \cup (IF Answers THEN {Message("ack", m.p, TRUE)} ELSE {})
            /\ UNCHANGED wait
         [] m.k = "ack" -> HearsAck(m.p, m.word) /\ Got(m) /\ UNCHANGED hold
         [] m.k = "notify" -> HearsNotify(m.p) /\ Got(m) /\ UNCHANGED hold
         [] m.k = "asked" -> HearsAsked /\ Got(m) /\ UNCHANGED wait
    /\ UNCHANGED <<store, ask, past>>

Lose(m) == "lose" \in Uses /\ Got(m) /\ UNCHANGED <<store, hold, wait, ask, past>>

Doubles(p) ==
    /\ "double" \in Uses \/ Forged
    /\ HearsNotify(p)
    /\ UNCHANGED <<store, net, hold, ask, past>>
Hurries ==
    /\ Forged \/ ("double" \in Uses /\ "ask" \in Uses)
    /\ HearsAsked
    /\ UNCHANGED <<store, net, wait, ask, past>>

\* A forged message lacks the word.
Forge == Forged /\ HearsWait(Third, FALSE) /\ UNCHANGED <<store, net, wait, ask, past>>

-----------------------------------------------------------------------------
Due ==
    \/ net # {}
    \/ CanHurry
    \/ "ask" \in Uses /\ CanBeat /\ hold.outAt >= H
    \/ ~Late /\ ((hold.out /\ hold.at = "work" /\ Held) \/ hold.at = "leaves" \/ (ask = "sent" /\ Held))
    \/ \E p \in Waiters :
        /\ Waits(p)
        /\ LookDue(p) \/ HintDue(p) \/ TellDue(p) \/ (MayTake(p) /\ (wait[p].shown = Version(store) \/ wait[p].looked > 0))

Longest == IF hold.at # "work" THEN 0 ELSE IF hold.out THEN L ELSE IF "ask" \in Uses THEN H ELSE 1
Older(w) == [w EXCEPT !.since = Min(@ + 1, L), !.looked = Min(@ + 1, L), !.sent = Min(@ + 1, W), !.hinted = FALSE]
Tick ==
    /\ ~Due
    /\ store' = [store EXCEPT !.at = Aged(@)]
    /\ hold' = [hold EXCEPT
        !.outAt = Min(@ + 1, Longest), !.sent = IF hold.at = "work" THEN Min(@ + 1, L) ELSE 0, !.hurried = FALSE,
        !.heard = [p \in DOMAIN @ |-> IF @[p] = L THEN Never ELSE Aged(@[p])]]
    /\ wait' = [p \in Waiters |-> IF Waits(p) THEN Older(wait[p]) ELSE wait[p]]
    /\ past' = [past EXCEPT
        !.looks = [p \in Waiters |-> 0], !.beats = 0, !.owed = Aged(@), !.asked = Aged(@), !.called = Aged(@)]
    /\ UNCHANGED <<net, ask>>

Init ==
    /\ store = [st |-> "held", own |-> 0, addr |-> 0, beat |-> 0, req |-> FALSE, at |-> 0]
    /\ net = {}
    /\ hold = [at |-> "work", made |-> 0, out |-> FALSE, outAt |-> 0, sent |-> 0, knows |-> FALSE,
               heard |-> [p \in Waiters \cup {Third} |-> Never], hurry |-> FALSE, hurried |-> FALSE, free |-> "none", tries |-> 0]
    /\ wait = [p \in Waiters |-> [
        shown |-> Version(store), since |-> 0, looked |-> 0, to |-> AddrOf(p, store), echo |-> FALSE, sent |-> 0,
        fresh |-> p \in Notified, known |-> FALSE, notified |-> FALSE, hinted |-> FALSE, free |-> FALSE]]
    /\ ask = "idle"
    /\ past = [owed |-> Never, looks |-> [p \in Waiters |-> 0], beats |-> 0, asked |-> Never, called |-> Never,
               hurried |-> FALSE, vain |-> FALSE, took |-> "none"]

Next ==
    /\ Open
    /\ \/ Send \/ Hurry \/ Apply \/ Confirm \/ Collide \/ Die
       \/ Leave("release") \/ Leave("hand over") \/ Free \/ Freed \/ Unknown
       \/ Ask \/ Asks \/ Asked \/ Hurries \/ Forge \/ Tick
       \/ \E m \in net : Arrives(m) \/ Lose(m)
       \/ \E p \in Waiters :
            \/ Look(p) \/ Hinted(p) \/ Tell(p) \/ Take(p) \/ Beaten(p) \/ Doubles(p)

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
(* Properties: README.md.                                                    *)

OneHolder == Believes => store.own = 0

Soon == (store.st = "held" /\ store.own = 0) \/ store.st = "reserved" => store.at <= L + R

Found == store.st \in {"released", "reserved"} => store.at <= R

Prompt == store.own = 0 \/ store.st = "reserved" => past.owed <= 1

Frees == hold.at = "over" /\ ~Late => ~Held

Finds == store.req /\ ~hold.knows => past.asked <= H
Hears == store.req /\ ~hold.knows => past.called <= 1

FewLooks == \A p \in Waiters : past.looks[p] <= 1
FewBeats == past.beats <= 1

ToHolder == \A p \in Waiters : wait[p].to # None => wait[p].shown.st = "held" /\ wait[p].shown.own = wait[p].to

NoThird == hold.heard[Third] = Never

-----------------------------------------------------------------------------
(* Reached: reached-*.cfg.                                                   *)

NeverNotified == ~(past.took = "notified" /\ past.owed = 0)

NeverTwice == ~(hold.tries > 0 /\ past.vain /\ past.took = "notified" /\ past.owed = 0)

NeverLost == ~(store.st = "released" /\ store.at = R /\ \E p \in Waiters : wait[p].known)

NeverSlow == ~(hold.at = "dead" /\ Held /\ store.at = L + R)

NeverHanded == ~(store.st = "reserved" /\ wait[1].shown = Version(store) /\ wait[1].hinted)

NeverNext == ~(\E p \in Waiters : wait[p].to > 0)

NeverHurried == ~(past.hurried /\ past.asked < H - 1)
=============================================================================
