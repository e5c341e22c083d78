"""Which tools only tell somebody something: a mail, a message, a post.

Such a call cannot be undone and does little harm, so a review names it by its kind. Words decide, in the languages in
which tools are written: those of the tool's name and of the params that take the text. What its description says may
name it in a review (``notice_kind``), and gives no leave (``is_notice``): whoever serves a tool writes its description.
"""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING, Final

from saga_engine.plan.identifiers import words

if TYPE_CHECKING:
    from saga_engine.plan.tool_spec import ToolSpec


def _words_of(text: str) -> frozenset[str]:
    return frozenset(text.split())


#: The kind of a notice, by the words of the tool's name: English, German, French, Spanish, Portuguese, Italian, Dutch;
#: then the transcriptions of other languages.
_KINDS: Final[dict[str, str]] = {
    word: kind
    for kind, listed in {
        "mail": "mail mails email emails newsletter correo correos courriel courriels mailing youjian meiru",
        "message": (
            "sms message messages msg chat slack teams telegram whatsapp wechat nachricht nachrichten mensaje mensajes "
            "mensagem mensagens messaggio messaggi xiaoxi duanxin weixin kakao zalo viber"
        ),
        "notice": (
            "notify notification notifications notice notices alert alerts inform tell announce push pager "
            "benachrichtige benachrichtigen benachrichtigung mitteilen mitteilung informieren informiere "
            "notifier notifie notifiez avertir avertit informer avis notificar notifica notificacion notificaciones "
            "avisar avisa aviso avisos informar notificacao notificacoes avvisare avviso informare notificare "
            "waarschuw tongzhi tsuchi renraku"
        ),
        "post": "post tweet publish publicar publier publicacion toot",
        "letter": "letter letters fax briefe lettre lettres lettera lettere",
    }.items()
    for word in listed.split()
}
#: The same in texts without spaces between words, with the words that do more.
_SIGNS: Final[tuple[tuple[str, str], ...]] = (
    ("邮件", "mail"), ("郵件", "mail"), ("メール", "mail"), ("이메일", "mail"), ("메일", "mail"), ("письмо", "mail"),
    ("短信", "message"), ("消息", "message"), ("訊息", "message"), ("微信", "message"), ("メッセージ", "message"),
    ("메시지", "message"), ("문자", "message"), ("сообщени", "message"),
    ("通知", "notice"), ("告知", "notice"), ("提醒", "notice"), ("連絡", "notice"), ("お知らせ", "notice"),
    ("알림", "notice"), ("уведомлени", "notice"),
    ("信函", "letter"), ("传真", "letter"), ("手紙", "letter"),
)  # fmt: skip
_MORE_SIGNS: Final = re.compile(
    "钱|款|包裹|发票|取消|批准|关闭|お金|請求|荷物|キャンセル|承認|删除|刪除|创建|更新|修改|支付|付款|转账|退款|预订|预定|订购|下单|账户|归档|移动|转发|订阅|列表|模板|規則|规则|"
    "削除|作成|支払|送金|返金|予約|注文|移動|転送|삭제|생성|결제|환불|예약|удал|созда|оплат|перевод|заказ"
)
#: Words of a name that do more than tell.
_MORE: Final = _words_of(
    "delete remove erase purge create update set pay payment transfer charge refund book order ledger journal "
    "account list lists box mailbox subscribe unsubscribe template rule rules server user archive move forward "
    "code branch image cancel close resolve acknowledge ack approve reject accept grant revoke sign buy sell "
    "block ban assign mute disable enable money cash funds wire coins crypto invoice parcel package shipment "
    "goods geld rechnung paket stornieren storniere schliessen genehmigen argent facture colis annuler fermer "
    "dinero factura paquete cancelar cerrar dinheiro fatura pacote denaro fattura pacco annullare loschen loesche "
    "loeschen losche erstellen erstelle anlegen zahlen zahle zahlung uberweisen ueberweisen ueberweise buchen "
    "buche bestellen bestelle konto liste vorlage weiterleiten verschieben abonnieren supprimer supprime creer "
    "cree payer paie virement virer rembourser reserver commander commande compte modele deplacer transferer "
    "abonner eliminar elimina borrar borra crear crea pagar paga transferir reembolsar reservar pedir pedido "
    "cuenta lista plantilla mover reenviar suscribir apagar excluir criar cria comprar reembolso conta modelo "
    "encaminhar assinar eliminare cancella creare pagare trasferire prenotare ordinare ordine inoltrare verwijder "
    "maak betaal boek bestel rekening"
)
#: Words that say that something is sent.
_SEND: Final = _words_of(
    "send sends sende senden sendet schicke schicken schickt verschicke verschicken verschickt versende versenden "
    "versendet envoyer envoie envoi enviar envia envio mandar manda inviare invia spedire verstuur stuur fasong"
)
#: Parameters that take what is said.
_TEXTS: Final = _words_of(
    "text message body content subject html title summary msg note template nachricht inhalt betreff titel texte "
    "contenu sujet objet titre corps texto mensaje contenido asunto titulo cuerpo mensagem conteudo assunto corpo "
    "testo messaggio oggetto contenuto bericht onderwerp inhoud neirong zhengwen"
)
_TEXT_SIGNS: Final = re.compile(
    "正文|内容|內容|主题|标题|文本|消息|件名|本文|タイトル|メッセージ|内容|제목|본문|내용|текст|тема"
)
#: Parameters that say who hears it.
_WHO: Final = _words_of(
    "to recipient recipients customer user email mail phone channel number empfaenger empfanger kunde an telefon "
    "destinataire client destinatario destinatarios cliente telefono telefone correo courriel kanal canal "
    "ontvanger klant"
)
_WHO_SIGNS: Final = re.compile("收件人|收信人|客户|用户|手机|宛先|送信先|顧客|받는|수신|고객|получател|клиент|кому")
#: Parameters that say how much: what is told has none.
_AMOUNTS: Final = _words_of(
    "amount sum price quantity qty value currency total betrag menge preis summe wert montant quantite prix somme "
    "monto importe cantidad precio valor quantia preco quantidade importo quantita prezzo bedrag jine shuliang"
)
_AMOUNT_SIGNS: Final = re.compile("金额|金額|数量|價格|价格|금액|수량|сумма|количеств")
#: How a description begins that says no more than that something is told. ``\w`` of any language.
_TELLS: Final = re.compile(
    r"\W*(?:(?:to )?(?:sends?|e-?mails?|texts?|notif(?:y|ies)|informs?|alerts?|tells?|posts?|announces?|messages?)"
    r"|sendet|schickt|verschickt|versendet|benachrichtigt|informiert|envoie|notifie|avertit|informe|env[ií]a|manda"
    r"|notifica|avisa|informa|invia|avvisa|stuurt|verstuurt|meldt)\b",
    re.IGNORECASE,
)
_SENT_SIGNS: Final = re.compile(
    "发送|發送|寄送|送信|送る|送ります|送付|通知|告知|提醒|連絡|보내|발송|전송|отправ|уведом"
)
_FIRST_SENTENCE: Final = re.compile(r"[^.!?;\n。！？；]*")
_MANY_WORDS: Final = 40


def notice_kind(spec: ToolSpec) -> str:
    """``mail``, ``message``, ``notice``, ``post`` or ``letter``; empty for a tool that does something else.

    A tool whose name says nothing is what its description says, if that says nothing else.
    """
    if spec.effect == "read" or spec.undo is not None or not _takes_text(spec):
        return ""
    return _named(spec) or _described(spec)


def is_notice(spec: ToolSpec) -> bool:
    """Whether a tool only tells somebody something, by its name and params."""
    return spec.effect != "read" and spec.undo is None and _takes_text(spec) and bool(_named(spec))


def _fields(spec: ToolSpec) -> list[str]:
    properties = spec.input_schema.get("properties")
    return [str(name) for name in properties] if isinstance(properties, dict) else []


def _takes_text(spec: ToolSpec) -> bool:
    """Whether it takes what is said, and no amount."""
    fields = _fields(spec)
    if any(_AMOUNTS & set(_words(name)) or _AMOUNT_SIGNS.search(name) for name in fields):
        return False
    return any(_TEXTS & set(_words(name)) or _TEXT_SIGNS.search(name) for name in fields)


def _named(spec: ToolSpec) -> str:
    found = _words(spec.name)
    if _MORE & set(found) or _MORE_SIGNS.search(spec.name):
        return ""
    kind = next((_KINDS[word] for word in reversed(found) if word in _KINDS), "")
    kind = kind or next((kind for sign, kind in _SIGNS if sign in spec.name), "")
    return "message" if not kind and _SEND & set(found) and _has_hearer(spec) else kind


def names_hearer(param: str) -> bool:
    """Whether a param of this name says who hears it."""
    return bool(_WHO & set(_words(param)) or _WHO_SIGNS.search(param))


def _has_hearer(spec: ToolSpec) -> bool:
    return any(names_hearer(name) for name in _fields(spec))


def _described(spec: ToolSpec) -> str:
    """The kind in the first sentence of a description that begins with telling and says nothing more."""
    first = _FIRST_SENTENCE.match(spec.description.strip())
    text = "" if first is None else first[0]
    # Names and sentences have the same words; accents make no difference.
    found = [word.lower() for word in re.findall(r"[^\W\d_]+", _without_accents(text))][:_MANY_WORDS]
    if _MORE & set(_words(spec.name)) or _MORE & set(found) or _MORE_SIGNS.search(text):
        return ""
    if _TELLS.match(_without_accents(text)):
        kind = next((_KINDS[word] for word in found if word in _KINDS), "")
        return kind or ("message" if _has_hearer(spec) else "")
    return next((kind for sign, kind in _SIGNS if sign in text), "") if _SENT_SIGNS.search(text) else ""


def _words(name: str) -> list[str]:
    return words(_without_accents(name))


def _without_accents(text: str) -> str:
    whole = unicodedata.normalize("NFKD", text.replace("ß", "ss"))
    return "".join(each for each in whole if not unicodedata.combining(each))
