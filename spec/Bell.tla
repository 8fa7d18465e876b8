-------------------------------- MODULE Bell --------------------------------
(* SPDX-FileCopyrightText: The Tenure Authors                               *)
(* SPDX-License-Identifier: Apache-2.0                                      *)
(*                                                                          *)
(* The bell of package internal/ringing: processes that wait for a lock     *)
(* tell its holder (Wait), and it rings them when it is free (Ring). One    *)
(* that asks it for something tells it that a request is in the record      *)
(* (Asked). README.md explains it to those who do not read TLA+.            *)
(*                                                                          *)
(* A time is an age, in ticks. A tick is a quarter of R, or of H, in the    *)
(* code. A look and a claim take no time. Heartbeats that are told of       *)
(* (Here) are in module Heard.                                              *)
EXTENDS Integers

CONSTANTS
    Waiters,  \* processes that wait, by numbers from 1; the holder is 0, and has a bell
    Belled,   \* those of them that have a bell, too
    L,        \* the lease
    R,        \* the refresh period: looks are no further apart
    H,        \* the heartbeat period, where one asks for something
    W,        \* how often one that waits says so: L/3 in the code
    Uses,     \* what happens: "beat", "release", "hand over", "die", "late", "ask", "lose", "double", "forge"
    Wrong

VARIABLES
    store,
    net,      \* messages under way
    hold,     \* the holder
    wait,     \* those that wait
    ask,      \* one that asks the holder for something
    past      \* what has happened; nobody reads it

vars == <<store, net, hold, wait, ask, past>>

Min(a, b) == IF a < b THEN a ELSE b
None == -1   \* no bell
Never == -1  \* an age
Third == 9   \* a process that has nothing to do with it

\* What is older is as old as this.
Old == L + R + 1
Aged(a) == IF a = Never THEN Never ELSE Min(a + 1, Old)

(* The record: its state, its owner, the owner's bell, its beat, whether a   *)
(* request is in it, and how old that state or beat is. A version is all of  *)
(* that but the age.                                                         *)

Version(r) == [st |-> r.st, own |-> r.own, bell |-> r.bell, beat |-> r.beat, req |-> r.req]
Sign(r) == <<r.st, r.own, r.beat>>

(* The holder.                                                               *)
(*   work    it holds the lock                                               *)
(*   leaves  its work has ended, and a release or a hand-over is sent        *)
(*   over                                                                    *)
(*   dead    its process has crashed                                         *)
(* made is its latest beat; out says that a heartbeat with it is under way,  *)
(* sent outAt ago. It counts its lease from sent. knows says that it has     *)
(* found the request; heard how long ago each of those that wait repeated    *)
(* its word, L at most; hurry that a message wants a heartbeat, hurried that *)
(* there was one for that in this tick. free is the write that ends the      *)
(* tenure and may yet be carried out, tries how often no answer came.        *)

(* One that waits: shown is the version that a look has shown last, since    *)
(* is how long it has been shown, looked how long ago that look was; to is   *)
(* whom it tells that it waits, sent how long ago it did. It is to do so now *)
(* (fresh), repeats the holder's word (echo), and was answered (known). rung *)
(* says that a hint to look is due, hinted that there was one in this tick;  *)
(* free is of a mistake.                                                     *)

Believes == hold.at = "work" /\ hold.sent < L
Waits(p) == store.st # "held" \/ store.own # p
Open == Waiters = {} \/ \E p \in Waiters : Waits(p)

\* Forged messages come at any time, and so those that are late, repeated or lost.
Forged == "forge" \in Uses
Sent(ms) == net' = IF Forged THEN net ELSE net \cup ms
Got(m) == m \in net /\ net' = net \ {m}
Message(k, p, word) == [k |-> k, p |-> p, word |-> word]

-----------------------------------------------------------------------------
(* The holder and the store. Where nothing is late a write is carried out    *)
(* and answered before time passes, else now, later, or never.               *)

Late == "late" \in Uses
Held == store.st = "held" /\ store.own = 0

\* A beat that nobody knows any more may come again: nobody can tell.
FreshBeat == CHOOSE b \in 0..3 : b # store.beat /\ \A p \in Waiters : b # wait[p].shown.beat
CanBeat == hold.at = "work" /\ ~hold.out
Beats == [hold EXCEPT !.made = FreshBeat, !.out = TRUE, !.outAt = 0]
Send ==
    /\ "beat" \in Uses /\ CanBeat /\ hold.outAt > 0
    /\ hold' = Beats
    /\ UNCHANGED <<store, net, wait, ask, past>>

\* A message has asked for it. There is one in a tick.
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

\* The conflict carries the request. The lease goes on from where it was.
Collide ==
    /\ hold.at = "work" /\ hold.out /\ Held /\ store.req # hold.knows
    /\ hold' = [hold EXCEPT !.out = FALSE, !.knows = TRUE]
    /\ past' = [past EXCEPT !.hurried = hold.hurried]
    /\ UNCHANGED <<store, net, wait, ask>>

Die ==
    /\ "die" \in Uses /\ hold.at \in {"work", "leaves"}
    /\ hold' = [hold EXCEPT !.at = "dead", !.sent = 0, !.outAt = 0, !.hurry = FALSE]
    /\ UNCHANGED <<store, net, wait, ask, past>>

\* Those are rung that were heard within the lease.
Rings == {Message("ring", p, FALSE) : p \in {q \in DOMAIN hold.heard : hold.heard[q] # Never}}
RingsIf(yes) == Sent(IF yes THEN Rings ELSE {})

\* Those that have been told that they will be rung.
Told == {p \in Waiters : wait[p].to = 0 /\ wait[p].echo /\ wait[p].known}

\* The mistake rings here, where all that wait are known, and not when it is carried out.
Leave(how) ==
    /\ how \in Uses /\ hold.at = "work" /\ ~hold.out
    /\ "early" \in Wrong => Told = Waiters
    /\ hold' = [hold EXCEPT !.at = "leaves", !.free = how, !.sent = 0, !.outAt = 0, !.hurry = FALSE]
    /\ RingsIf("early" \in Wrong)
    /\ UNCHANGED <<store, wait, ask, past>>

\* A hand-over is to the first that waits. Stores refuse a bell in a record that is not held.
Keeps == "kept" \in Wrong \/ "kept unguarded" \in Wrong
Takes(w) == w # "none" /\ Fits /\ "kept" \notin Wrong
Free ==
    /\ Takes(hold.free)
    /\ store' = [store EXCEPT
        !.st = IF hold.free = "release" THEN "released" ELSE "reserved",
        !.own = IF hold.free = "release" THEN 0 ELSE 1,
        !.bell = IF Keeps THEN @ ELSE None, !.req = FALSE, !.at = 0]
    /\ hold' = [hold EXCEPT !.free = "none"]
    /\ UNCHANGED <<net, wait, ask, past>>

\* From now on they should have the lock.
Owes == IF past.owed = Never /\ ~Held /\ Told # {} /\ (store.st = "reserved" => 1 \in Told) THEN 0 ELSE past.owed

\* It is over when an answer has come, or when none came twice.
Freed ==
    /\ hold.at = "leaves" /\ (~Held \/ "kept" \in Wrong)
    /\ hold' = [hold EXCEPT !.at = "over"]
    /\ past' = [past EXCEPT !.owed = Owes]
    /\ RingsIf("early" \notin Wrong /\ store.st # "held")
    /\ UNCHANGED <<store, wait, ask>>
Unknown ==
    /\ Late /\ hold.at = "leaves"
    /\ hold' = [hold EXCEPT !.tries = @ + 1, !.at = IF hold.tries = 1 THEN "over" ELSE @]
    /\ past' = [past EXCEPT !.owed = Owes]
    /\ RingsIf("early" \notin Wrong /\ "unknown" \notin Wrong)
    /\ UNCHANGED <<store, wait, ask>>

-----------------------------------------------------------------------------
(* What the holder hears. Once it is over it answers nothing.                *)

Answers == hold.at \in {"work", "leaves"}

\* One that waits says so, with the holder's word or without. Only those are rung that have
\* repeated it: the word was sent to them.
HearsWait(p, word) ==
    IF ~Answers THEN UNCHANGED hold
    ELSE hold' = [hold EXCEPT
        !.heard[p] = IF word \/ "no word" \in Wrong THEN 0 ELSE @,
        !.sent = IF "wait confirms" \in Wrong THEN 0 ELSE @]

\* One that comes too soon is kept.
HearsAsked ==
    hold' = [hold EXCEPT
        !.hurry = @ \/ (Believes /\ ("dropped" \notin Wrong \/ ~hold.hurried)),
        !.sent = IF "asked confirms" \in Wrong /\ Believes THEN 0 ELSE @]

-----------------------------------------------------------------------------
(* Those that wait.                                                          *)

\* The holder whose bell the record has.
BellOf(p, r) == IF p \in Belled /\ (r.st = "held" \/ "kept unguarded" \in Wrong) THEN r.bell ELSE None

Saw(p) ==
    LET w == wait[p]
        to == IF "former" \in Wrong /\ w.to # None /\ store.st = "held" THEN w.to ELSE BellOf(p, store)
        v == [w EXCEPT !.shown = Version(store), !.looked = 0, !.since = IF Sign(store) = Sign(w.shown) THEN @ ELSE 0]
    IN IF to = w.to THEN v
       ELSE [v EXCEPT !.to = to, !.echo = FALSE, !.sent = 0, !.fresh = to # None, !.known = FALSE, !.rung = FALSE,
                       !.hinted = @ /\ "anew" \notin Wrong]

\* How far looks are apart. The mistakes leave it to the bell.
Pace(p) ==
    IF \/ "unanswered" \in Wrong /\ wait[p].to # None
       \/ "answered" \in Wrong /\ wait[p].to # None /\ wait[p].known
    THEN L ELSE R
LookDue(p) == wait[p].looked >= Pace(p)

\* Where hints come at any time, looks before they are due bring nothing new.
Look(p) ==
    /\ Waits(p) /\ wait[p].looked > 0
    /\ LookDue(p) \/ (wait[p].looked < R /\ ~Forged /\ "double" \notin Uses)
    /\ wait' = [wait EXCEPT ![p] = Saw(p)]
    /\ UNCHANGED <<store, net, hold, ask, past>>

\* The holder has rung. There is one such look in a tick.
HintDue(p) == wait[p].rung /\ (~wait[p].hinted \/ "hints" \in Wrong)
Hinted(p) ==
    /\ Waits(p) /\ HintDue(p)
    /\ wait' = [wait EXCEPT ![p] = [Saw(p) EXCEPT !.rung = FALSE, !.hinted = TRUE]]
    /\ past' = [past EXCEPT !.looks[p] = Min(2, @ + 1), !.vain = @ \/ (Held /\ hold.tries > 0 /\ ~Forged)]
    /\ UNCHANGED <<store, net, hold, ask>>

\* A ring is a hint, and nothing else. One that comes too soon is kept.
HearsRing(p) ==
    LET w == wait[p] IN
    IF w.to = None \/ ~Waits(p) THEN UNCHANGED wait
    ELSE wait' = [wait EXCEPT ![p] = [w EXCEPT
        !.rung = @ \/ "dropped" \notin Wrong \/ ~w.hinted,
        !.since = IF "a look" \in Wrong THEN 0 ELSE @,
        !.free = "free" \in Wrong]]

\* The answer to one that waits has the word that it is to repeat. One that it has repeated
\* is as good as the promise to be rung.
HearsAck(p, echo) ==
    LET w == wait[p]
        v == [w EXCEPT !.since = IF "life" \in Wrong THEN 0 ELSE @] IN
    IF w.to = None \/ ~Waits(p) THEN UNCHANGED wait
    ELSE wait' = [wait EXCEPT ![p] = IF w.echo THEN [v EXCEPT !.known = TRUE] ELSE [v EXCEPT !.echo = TRUE, !.fresh = TRUE]]

\* Once it was answered it says so again each W, and until then as often as it looks. Where
\* any message may come, what is sent makes no difference.
TellDue(p) ==
    LET w == wait[p] IN
    /\ w.to # None /\ ~Forged
    /\ w.fresh \/ (w.sent >= (IF w.known THEN W ELSE Min(R, W)) /\ ("once" \in Wrong => ~w.known))
Tell(p) ==
    /\ Waits(p) /\ TellDue(p)
    /\ wait' = [wait EXCEPT ![p] = [@ EXCEPT !.sent = 0, !.fresh = FALSE, !.known = FALSE]]
    /\ Sent(IF wait[p].to = 0 THEN {Message("wait", p, wait[p].echo)} ELSE {})
    /\ UNCHANGED <<store, hold, ask, past>>

\* It takes the lock by a swap from the record that a look has shown: when that is free, or
\* reserved for it, or when its beat has stood for the lease.
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
        !.bell = IF p \in Belled THEN p ELSE IF "inherited" \in Wrong THEN @ ELSE None]
    /\ wait' = [wait EXCEPT ![p].to = None]
    /\ past' = [past EXCEPT !.took = IF @ # "none" THEN @ ELSE IF wait[p].hinted THEN "rung" ELSE "looked"]
    /\ UNCHANGED <<net, hold, ask>>
\* Another one was quicker, and the answer shows who.
Beaten(p) ==
    /\ Waits(p) /\ MayTake(p) /\ wait[p].shown # Version(store)
    /\ wait' = [wait EXCEPT ![p] = [Saw(p) EXCEPT !.free = FALSE]]
    /\ UNCHANGED <<store, net, hold, ask, past>>

-----------------------------------------------------------------------------
(* One that asks: it swaps a request into the record, and tells the holder   *)
(* when it knows that this was carried out.                                  *)

Called == {Message("asked", 0, FALSE)}
Ask ==
    /\ "ask" \in Uses /\ ask = "idle" /\ Held
    /\ ask' = "sent"
    /\ Sent(IF "asked early" \in Wrong /\ store.bell = 0 THEN Called ELSE {})
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
    /\ Sent(IF "asked early" \notin Wrong /\ store.bell = 0 THEN Called ELSE {})
    /\ UNCHANGED <<store, hold, wait>>

-----------------------------------------------------------------------------
(* Messages.                                                                 *)

Arrives(m) ==
    /\ CASE m.k = "wait" ->
            /\ HearsWait(m.p, m.word)
            /\ net' = (net \ {m}) \cup (IF Answers THEN {Message("ack", m.p, TRUE)} ELSE {})
            /\ UNCHANGED wait
         [] m.k = "ack" -> HearsAck(m.p, m.word) /\ Got(m) /\ UNCHANGED hold
         [] m.k = "ring" -> HearsRing(m.p) /\ Got(m) /\ UNCHANGED hold
         [] m.k = "asked" -> HearsAsked /\ Got(m) /\ UNCHANGED wait
    /\ UNCHANGED <<store, ask, past>>

Lose(m) == "lose" \in Uses /\ Got(m) /\ UNCHANGED <<store, hold, wait, ask, past>>

\* Rings and requests to heartbeat come that nobody has sent just now.
Doubles(p) ==
    /\ "double" \in Uses \/ Forged
    /\ HearsRing(p)
    /\ UNCHANGED <<store, net, hold, ask, past>>
Hurries ==
    /\ Forged \/ ("double" \in Uses /\ "ask" \in Uses)
    /\ HearsAsked
    /\ UNCHANGED <<store, net, wait, ask, past>>

\* So does one that says that another process waits. It cannot say the holder's word, which
\* was not sent to it.
Forge == Forged /\ HearsWait(Third, FALSE) /\ UNCHANGED <<store, net, wait, ask, past>>

-----------------------------------------------------------------------------
\* No time passes before what is due is done.
Due ==
    \/ net # {}
    \/ CanHurry
    \/ "ask" \in Uses /\ CanBeat /\ hold.outAt >= H
    \/ ~Late /\ ((hold.out /\ hold.at = "work" /\ Held) \/ hold.at = "leaves" \/ (ask = "sent" /\ Held))
    \/ \E p \in Waiters :
        /\ Waits(p)
        /\ LookDue(p) \/ HintDue(p) \/ TellDue(p) \/ (MayTake(p) /\ (wait[p].shown = Version(store) \/ wait[p].looked > 0))

\* Ages matter while the holder works: of its heartbeats, and of one that is under way.
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
    /\ store = [st |-> "held", own |-> 0, bell |-> 0, beat |-> 0, req |-> FALSE, at |-> 0]
    /\ net = {}
    /\ hold = [at |-> "work", made |-> 0, out |-> FALSE, outAt |-> 0, sent |-> 0, knows |-> FALSE,
               heard |-> [p \in Waiters \cup {Third} |-> Never], hurry |-> FALSE, hurried |-> FALSE, free |-> "none", tries |-> 0]
    /\ wait = [p \in Waiters |-> [
        shown |-> Version(store), since |-> 0, looked |-> 0, to |-> BellOf(p, store), echo |-> FALSE, sent |-> 0,
        fresh |-> p \in Belled, known |-> FALSE, rung |-> FALSE, hinted |-> FALSE, free |-> FALSE]]
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
(* What must hold. README.md says each in words.                             *)

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
(* What must be reached, or what holds says little: each of these must be    *)
(* refuted, by a configuration that says it in words.                        *)

NeverRung == ~(past.took = "rung" /\ past.owed = 0)

NeverTwice == ~(hold.tries > 0 /\ past.vain /\ past.took = "rung" /\ past.owed = 0)

NeverLost == ~(store.st = "released" /\ store.at = R /\ \E p \in Waiters : wait[p].known)

NeverSlow == ~(hold.at = "dead" /\ Held /\ store.at = L + R)

NeverHanded == ~(store.st = "reserved" /\ wait[1].shown = Version(store) /\ wait[1].hinted)

NeverNext == ~(\E p \in Waiters : wait[p].to > 0)

NeverHurried == ~(past.hurried /\ past.asked < H - 1)
=============================================================================
